// SPDX-License-Identifier: Apache-2.0
// Annotations of boxes in images: COCO's JSON (https://cocodataset.org/#format-data: images, categories, annotations),
// Pascal VOC's XML and YOLO's text files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/file_tree.h"

namespace octet {

struct BoxAnnotations {
  struct Category {
    int64_t id = 0;
    std::string name;
  };
  struct AnnotatedImage {
    int64_t id = 0;
    std::string file;  ///< relative to the folder of the images
    ImageSize size;    ///< 0 x 0 where the file does not say
    std::vector<BoxLabel> labels;
  };
  std::vector<Category> categories;    ///< by ascending id; BoxLabel::class_index is a place here
  std::vector<AnnotatedImage> images;  ///< by ascending id, those without boxes too
  std::vector<std::string> notes;      ///< what the user should know: boxes outside their image or without area
};

/// Returns the size that annotations say an image has, 0 x 0 if they do not. Throws Error(data) for one that none has.
ImageSize annotated_size(double height, double width, const std::string& where);

/// What is wrong with the boxes and images of annotations: counted by kind, with the place of the first.
class BoxFaults {
 public:
  /// leave_out: what leave_out() is told of is counted, not refused.
  explicit BoxFaults(bool leave_out = false) : leaves_out_(leave_out) {}
  /// Counts a box that reaches more than a pixel over its image (COCO's own do by parts of one), or has no area. An
  /// image of 0 x 0 holds all.
  void look_at(const Box& box, const ImageSize& image, const std::string& where);
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

}  // namespace octet
