// SPDX-License-Identifier: Apache-2.0
// Data sets of JPEG, PNG, BMP and WebP files, on disk or inside a .tar, with a mask beside each that gives every pixel
// a class (segmentation).
#pragma once

#include <memory>

#include "src/data/dataset.h"

namespace octet {

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

}  // namespace octet
