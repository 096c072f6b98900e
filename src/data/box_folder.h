// SPDX-License-Identifier: Apache-2.0
// Images with boxes, annotated in COCO's JSON (https://cocodataset.org/#format-data: images, categories, annotations),
// in Pascal VOC's XML or in YOLO's text files, for training and evaluation.
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

/// What is wrong with the boxes and images of annotations: counted by kind, with the place of the first.
class BoxFaults {
 public:
  /// leave_out: what leave_out() is told of is counted, not refused.
  explicit BoxFaults(bool leave_out = false) : leaves_out_(leave_out) {}
  /// Counts a box that reaches more than a pixel over its image (COCO's own do by parts of one), or has no area. An
  /// image of 0 x 0 holds all.
  void look_at(const Box& box, const PictureSize& image, const std::string& where);
  /// Throws Error(data) of what is wrong at that place, or counts the box or image ("box", "image") that is left out.
  void leave_out(const std::string& noun, const std::string& where, const std::string& what);
  void tell(std::vector<std::string>& notes) const;  ///< appends how many there are of each kind

 private:
  struct Kind {
    std::string noun, what;
    long count = 0;
    std::string first;
  };
  void count(const std::string& noun, const std::string& what, const std::string& where);

  bool leaves_out_;
  std::vector<Kind> kinds_;
};

/// Reads annotations. `area` is the box's where it is missing, `iscrowd` 0. Throws Error(data) naming the file and the
/// entry for JSON that is none or lacks a key, equal ids, boxes that are not four numbers or of negative size, and
/// annotations of an image or, if they are not left out, a category that the file does not list.
BoxAnnotations read_coco(const std::string& path);
BoxAnnotations parse_coco(const std::string& text, const std::string& name, bool leave_out = false);  ///< of that file

/// Returns the names in a list of Pascal VOC's, one a line. Throws Error(data) naming the line where there are two.
std::vector<std::string> read_voc_list(const StoredFile& list);

/// Reads Pascal VOC's annotations, FOLDER/NAME.xml of each name. Objects that are marked difficult become crowds: they
/// are not trained on, and finding them neither helps nor harms. Categories are class_names, or if those are empty the
/// names of all objects, sorted. Throws Error(data) naming file and line for XML that is none or lacks an element,
/// numbers that are none, boxes of negative size and, if they are not left out, objects of other classes.
BoxAnnotations read_voc(const FileTree& tree, const std::string& folder, const std::vector<std::string>& names,
                        const std::vector<std::string>& class_names, bool leave_out = false);

/// Reads YOLO's labels of images that lie below images_folder of the tree: of NAME.jpg those of NAME.txt below
/// labels_folder. A line is a box, its class and its centre, width and height as shares of the image's, or a polygon,
/// its class and points x y, of which the box around it is taken. An image without a file, or with an empty one, has no
/// boxes. Throws Error(data) naming file and line for a line that is neither, numbers that are none and, if they are
/// not left out, classes that class_names has not.
BoxAnnotations read_yolo(const Dataset& images, const FileTree& tree, const std::string& images_folder,
                         const std::string& labels_folder, const std::vector<std::string>& class_names,
                         bool leave_out = false);

/// Returns the folders of the images and of the labels of a split of format yolo, as BoxFolder finds them in the tree
/// at spec.path. Throws Error(data) if there are none.
std::pair<std::string, std::string> yolo_folders(const FileTree& tree, const DatasetSpec& spec);

class BoxFolder : public Dataset {
 public:
  /// PATH is a folder or a .tar. Reads the annotations of a split, the first of these files that exists:
  /// PATH/SPLIT.json, PATH/annotations/SPLIT.json, PATH/annotations/instances_SPLIT.json (COCO's own layout),
  /// PATH/SPLIT/_annotations.coco.json (Roboflow's). Its images are in the first of these folders that exists:
  /// PATH/images/SPLIT, PATH/SPLIT, PATH/images, PATH. With format voc PATH/ImageSets/Main/SPLIT.txt lists names,
  /// images are in PATH/JPEGImages and annotations in PATH/Annotations. With format yolo images and labels are in
  /// PATH/images/SPLIT and PATH/labels/SPLIT, in PATH/SPLIT/images and PATH/SPLIT/labels, or SPLIT is the folder of the
  /// images, absolute or in PATH, with the labels where its last folder called images is called labels; and the classes
  /// must be given. Else classes are the categories by ascending id; with spec.classes or spec.class_names those, and
  /// categories are found by name. Throws Error(data) as read_coco() does, and for missing files and, unless
  /// spec.leave_out_faults, for images that are not there and boxes of a category that is no class.
  explicit BoxFolder(const DatasetSpec& spec);
  size_t size() const override { return boxes_.size(); }
  int channels() const override { return images_->channels(); }
  Labels labels() const override { return Labels::boxes; }
  int label(size_t index) const override;
  Image read(size_t index) const override;  ///< throws as require_size(), too
  std::optional<std::string> file(size_t index) const override { return images_->file(index); }
  void require_size(size_t index, const PictureSize& size) const override;  ///< that the annotations say, if they do
  const std::vector<BoxLabel>& boxes(size_t index) const override { return boxes_.at(index); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::string describe(size_t index) const override { return images_->describe(index); }
  std::optional<PictureHeader> header(size_t index) const override { return images_->header(index); }
  Orientation orientation() const override { return images_->orientation(); }
  std::vector<std::string> notes() const override { return notes_; }

 private:
  void open_coco(const DatasetSpec& spec);
  void open_voc(const DatasetSpec& spec);
  void open_yolo(const DatasetSpec& spec);
  void take(BoxAnnotations annotations, const std::string& file);
  void take_classes(const DatasetSpec& spec, BoxAnnotations& annotations, const std::string& file);

  std::optional<ImageList> images_;
  std::vector<std::vector<BoxLabel>> boxes_;  ///< by image
  std::vector<PictureSize> sizes_;            ///< by image; 0 x 0 where the annotations do not say
  std::vector<std::string> class_names_, notes_;
};

}  // namespace octet
