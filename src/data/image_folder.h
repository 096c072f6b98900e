// SPDX-License-Identifier: Apache-2.0
// Data sets of JPEG, PNG, BMP and WebP files, on disk or inside a .tar, with a class for each image; and what names the
// classes of all data sets of files.
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

}  // namespace octet
