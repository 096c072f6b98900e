// SPDX-License-Identifier: Apache-2.0
// Annotations of boxes in COCO's JSON (https://cocodataset.org/#format-data): images, categories, annotations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/boxes.h"
#include "src/data/dataset.h"

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

/// Reads annotations. `area` is the box's where it is missing, `iscrowd` 0. Throws Error(data) naming the file and the
/// entry for JSON that is none or lacks a key, equal ids, boxes that are not four numbers or of negative size, and
/// annotations of an image or category that the file does not list.
BoxAnnotations read_coco(const std::string& path);

}  // namespace octet
