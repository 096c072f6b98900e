// SPDX-License-Identifier: Apache-2.0
// Images with boxes, annotated in COCO's JSON (https://cocodataset.org/#format-data: images, categories, annotations)
// or in YOLO's text files, for training and evaluation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/data/boxes.h"
#include "src/data/dataset.h"
#include "src/data/file_tree.h"
#include "src/data/image_files.h"

namespace octet {

struct BoxAnnotations {
  struct Category {
    int64_t id = 0;
    std::string name;
  };
  struct Picture {
    int64_t id = 0;
    std::string file;  ///< relative to the folder of the images
    PictureSize size;  ///< 0 x 0 where the file does not say
    std::vector<BoxLabel> labels;
  };
  std::vector<Category> categories;  ///< by ascending id; BoxLabel::class_index is a place here
  std::vector<Picture> images;       ///< by ascending id, those without boxes too
  std::vector<std::string> notes;    ///< what the user should know: boxes outside their image or without area
};

/// Counts the boxes that reach more than a pixel over their image (COCO's own do by parts of one) or have no area.
class UnusualBoxes {
 public:
  void add(const Box& box, const PictureSize& image, const std::string& where);  ///< an image of 0 x 0 holds all
  void tell(std::vector<std::string>& notes) const;  ///< appends how many there are, and where the first is

 private:
  struct Kind {
    long count = 0;
    std::string first;
  };
  Kind outside_, flat_;
};

/// Reads annotations. `area` is the box's where it is missing, `iscrowd` 0. Throws Error(data) naming the file and the
/// entry for JSON that is none or lacks a key, equal ids, boxes that are not four numbers or of negative size, and
/// annotations of an image or category that the file does not list.
BoxAnnotations read_coco(const std::string& path);
BoxAnnotations parse_coco(const std::string& text, const std::string& name);  ///< of a file with that name

/// Reads YOLO's labels of images that lie below images_folder of the tree: of NAME.jpg those of NAME.txt below
/// labels_folder. A line is a box, its class and its centre, width and height as shares of the image's, or a polygon,
/// its class and points x y, of which the box around it is taken. An image without a file, or with an empty one, has no
/// boxes. Throws Error(data) naming file and line for a line that is neither, numbers that are none, and classes that
/// class_names has not.
BoxAnnotations read_yolo(const Dataset& images, const FileTree& tree, const std::string& images_folder,
                         const std::string& labels_folder, const std::vector<std::string>& class_names);

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
