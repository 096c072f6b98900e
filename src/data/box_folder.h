// SPDX-License-Identifier: Apache-2.0
// Images with boxes, annotated in COCO's JSON or YOLO's text files, for training and evaluation.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/data/coco.h"
#include "src/data/dataset.h"
#include "src/data/file_tree.h"
#include "src/data/image_files.h"

namespace octet {

/// Returns the folders of the images and of the labels of a split of format yolo, as BoxFolder finds them in the tree
/// at spec.path. Throws Error(data) if there are none.
std::pair<std::string, std::string> yolo_folders(const FileTree& tree, const DatasetSpec& spec);

class BoxFolder : public Dataset {
 public:
  /// PATH is a folder or a .tar. Reads the annotations of a split, the first of these files that exists:
  /// PATH/SPLIT.json, PATH/annotations/SPLIT.json, PATH/annotations/instances_SPLIT.json (COCO's own layout),
  /// PATH/SPLIT/_annotations.coco.json (Roboflow's). Its images are in the first of these folders that exists:
  /// PATH/images/SPLIT, PATH/SPLIT, PATH/images, PATH. With format yolo images and labels are in PATH/images/SPLIT and
  /// PATH/labels/SPLIT, in PATH/SPLIT/images and PATH/SPLIT/labels, or SPLIT is the folder of the images, absolute or
  /// in PATH, with the labels where its last folder called images is called labels; and the classes must be given. Else
  /// classes are the categories by ascending id; with spec.classes or spec.class_names those, and categories are found
  /// by name. Throws Error(data) as read_coco() does, and for missing files, for images that are not there, and for
  /// boxes of a category that is no class.
  explicit BoxFolder(const DatasetSpec& spec);
  size_t size() const override { return boxes_.size(); }
  int channels() const override { return images_->channels(); }
  Labels labels() const override { return Labels::boxes; }
  int label(size_t index) const override;
  Image read(size_t index) const override;  ///< throws, too, if the image has not the size that the annotations say
  const std::vector<BoxLabel>& boxes(size_t index) const override { return boxes_.at(index); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::string describe(size_t index) const override { return images_->describe(index); }
  std::optional<PictureHeader> header(size_t index) const override { return images_->header(index); }
  Orientation orientation() const override { return images_->orientation(); }
  std::vector<std::string> notes() const override { return notes_; }

 private:
  void open_coco(const DatasetSpec& spec);
  void open_yolo(const DatasetSpec& spec);
  void take(BoxAnnotations annotations, const std::string& file);
  void take_classes(const DatasetSpec& spec, BoxAnnotations& annotations, const std::string& file);

  std::optional<ImageList> images_;
  std::vector<std::vector<BoxLabel>> boxes_;  ///< by image
  std::vector<PictureSize> sizes_;            ///< by image; 0 x 0 where the annotations do not say
  std::vector<std::string> class_names_, notes_;
};

}  // namespace octet
