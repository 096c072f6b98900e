// SPDX-License-Identifier: Apache-2.0
// Data sets of JPEG, PNG, BMP and WebP files, on disk or inside a .tar, with a class for each image, for each pixel
// (segmentation), or boxes (detection); and what names their classes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/data/dataset.h"

namespace octet {

/// Returns the lines of a file that names classes in their order, without blanks at their end and without a byte order
/// mark. Throws Error(data), also for a class that is listed twice.
std::vector<std::string> read_classes(const std::string& path);
std::vector<std::string> parse_classes(const std::string& text, const std::string& name);  ///< of a file with that name

/// Returns what says which classes there are, for messages: a split is not told whether spec.class_names were in the
/// recipe or are those of the training images.
std::string classes_from(const DatasetSpec& spec);

/// Opens images with one class each: path/split/CLASS/FILE, or the members split/CLASS/FILE of the .tar at path, also
/// below a single folder that holds all of it. Files that do not end as images do, and folders within class folders,
/// are left out: notes() counts them. Tells the user which classes of spec.classes or spec.class_names have no image.
/// Throws Error(data) for a folder without an image if neither of them says what the classes are, and if there is no
/// image at all.
std::unique_ptr<Dataset> open_image_folder(const DatasetSpec& spec);

/// Opens images with masks, which give each pixel a class: the first of these layouts of a folder or a .tar that is
/// there (images, masks):
///   PATH/images/SPLIT, PATH/masks/SPLIT or PATH/annotations/SPLIT (ADE20K)
///   PATH/SPLIT/images, PATH/SPLIT/masks
///   PATH/SPLIT, PATH/SPLITannot (CamVid as SegNet has it), PATH/SPLIT_labels or PATH/SPLIT_masks
///   PATH/JPEGImages, PATH/SegmentationClass, with names in PATH/ImageSets/Segmentation/SPLIT.txt (Pascal VOC)
/// The mask of a/NAME.jpg is a/NAME.png, a/NAME_mask.png or a/NAME_L.png. Masks hold numbers of classes, or colours:
/// the file of spec.classes has one class a line, in the order of the labels, and may have its colour before or behind
/// the name, three numbers 0 .. 255 between blanks or commas; lines with one name are one class, and "-" names the
/// colours of pixels that have none. Throws Error(data) naming the line, or files that are missing, and the cure.
/// mask() throws, too, for a pixel that is no class and not without one, header() for a mask of another size.
std::unique_ptr<Dataset> open_mask_folder(const DatasetSpec& spec);

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

}  // namespace octet
