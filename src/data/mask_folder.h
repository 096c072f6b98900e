// SPDX-License-Identifier: Apache-2.0
// Images beside masks, which give each pixel a class, for training and evaluation of segmentation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/image_files.h"

namespace octet {

/// The classes of masks, and how their pixels say them.
struct MaskClasses {
  std::vector<std::string> names;
  std::map<uint32_t, uint8_t> colours;  ///< 0xRRGGBB to class or kUnlabelled; empty: pixels are numbers of classes
};

/// Reads a file with one class a line, in the order of the labels; or with its colour before or behind the name, three
/// numbers 0 .. 255 between blanks or commas: lines with one name are one class, and "-" names the colours of pixels
/// that have none. Throws Error(data) naming the line.
MaskClasses read_mask_classes(const std::string& path);

class MaskFolder : public Dataset {
 public:
  /// Lists the images of a split of a folder or a .tar, in the first of these layouts that is there (images, masks):
  ///   PATH/images/SPLIT, PATH/masks/SPLIT or PATH/annotations/SPLIT (ADE20K)
  ///   PATH/SPLIT/images, PATH/SPLIT/masks
  ///   PATH/SPLIT, PATH/SPLITannot (CamVid as SegNet has it), PATH/SPLIT_labels or PATH/SPLIT_masks
  ///   PATH/JPEGImages, PATH/SegmentationClass, with names in PATH/ImageSets/Segmentation/SPLIT.txt (Pascal VOC)
  /// The mask of a/NAME.jpg is a/NAME.png, a/NAME_mask.png or a/NAME_L.png. Classes are those of spec.classes, or
  /// spec.class_names, whose masks hold numbers. Throws Error(data) naming files that are missing, and the cure.
  explicit MaskFolder(const DatasetSpec& spec);
  size_t size() const override { return masks_.size(); }
  int channels() const override { return images_->channels(); }
  Labels labels() const override { return Labels::pixels; }
  int label(size_t index) const override;
  Image read(size_t index) const override { return images_->read(index); }
  std::optional<std::string> file(size_t index) const override { return images_->file(index); }
  /// Throws Error(data), too, for a pixel that is no class and not without one, naming it.
  Image mask(size_t index) const override;
  const std::vector<std::string>& class_names() const override { return classes_.names; }
  std::string describe(size_t index) const override { return images_->describe(index); }
  /// Throws, too, if the mask has another size.
  std::optional<PictureHeader> header(size_t index) const override;
  Orientation orientation() const override { return images_->orientation(); }
  std::vector<std::string> notes() const override { return images_->notes(); }

 private:
  Image classes_of_colours(const Image& colours, const std::string& name) const;

  MaskClasses classes_;
  std::string classes_from_;  ///< the file, or the key, for messages
  int ignore_index_;
  std::optional<ImageList> images_;
  std::vector<StoredFile> masks_;  ///< by image
};

}  // namespace octet
