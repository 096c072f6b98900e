// SPDX-License-Identifier: Apache-2.0
// Annotations of boxes in COCO's JSON (https://cocodataset.org/#format-data): images, categories, annotations; and in
// YOLO's text files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/boxes.h"
#include "src/data/dataset.h"
#include "src/data/file_tree.h"

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
/// labels_folder. A
/// line is a box, its class and its centre, width and height as shares of the image's, or a polygon, its class and
/// points x y, of which the box around it is taken. An image without a file, or with an empty one, has no boxes. Throws
/// Error(data) naming file and line for a line that is neither, numbers that are none, and classes that class_names has
/// not.
BoxAnnotations read_yolo(const Dataset& images, const FileTree& tree, const std::string& images_folder,
                         const std::string& labels_folder, const std::vector<std::string>& class_names);

}  // namespace octet
