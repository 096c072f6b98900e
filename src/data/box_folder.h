// SPDX-License-Identifier: Apache-2.0
// Data sets of JPEG, PNG, BMP and WebP files, on disk or inside a .tar, with boxes (detection).
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "src/data/dataset.h"
#include "src/data/file_tree.h"

namespace octet {

/// Opens images with boxes in a folder or a .tar, PATH (box_annotations.h reads the annotations). With format coco the
/// annotations are the first of these files that exists: PATH/SPLIT.json, PATH/annotations/SPLIT.json,
/// PATH/annotations/instances_SPLIT.json (COCO's own layout), PATH/SPLIT/_annotations.coco.json (Roboflow's); the
/// images are in the first of these folders that exists: PATH/images/SPLIT, PATH/SPLIT, PATH/images, PATH. With format
/// voc PATH/ImageSets/Main/SPLIT.txt lists names, images are in PATH/JPEGImages and annotations in PATH/Annotations.
/// With format yolo images and labels are in PATH/images/SPLIT and PATH/labels/SPLIT, in PATH/SPLIT/images and
/// PATH/SPLIT/labels, or SPLIT is the folder of the images, absolute or in PATH, with the labels where its last folder
/// called images is called labels; and the classes must be given. Else classes are the categories by ascending id; with
/// spec.classes or spec.class_names those, and categories are found by name. Throws Error(data) as parse_coco() does,
/// and for missing files and, unless spec.leave_out_faults, for images that are not there and boxes of a category that
/// is no class. read() throws, too, for an image of another size than the annotations say, if they do.
std::unique_ptr<Dataset> open_box_folder(const DatasetSpec& spec);

/// Returns the folders of the images and of the labels of a split of format yolo, as open_box_folder() finds them in
/// the tree at spec.path. Throws Error(data) if there are none.
std::pair<std::string, std::string> yolo_folders(const FileTree& tree, const DatasetSpec& spec);

}  // namespace octet
