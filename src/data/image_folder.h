// SPDX-License-Identifier: Apache-2.0
// JPEG, PNG, BMP and WebP files in class folders, on disk or inside a .tar.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/image_files.h"

namespace octet {

/// Returns the lines of a file that names classes in their order, without blanks at their end and without a byte order
/// mark. Throws Error(data), also for a class that is listed twice.
std::vector<std::string> read_classes(const std::string& path);
std::vector<std::string> parse_classes(const std::string& text, const std::string& name);  ///< of a file with that name

/// Returns what says which classes there are, for messages: a split is not told whether spec.class_names were in the
/// recipe or are those of the training images.
std::string classes_from(const DatasetSpec& spec);

class ImageFolder : public Dataset {
 public:
  /// Lists path/split/CLASS/FILE, or the members split/CLASS/FILE of the .tar at path, also below a single folder that
  /// holds all of it. Files that do not end as images do, and folders within class folders, are left out: notes()
  /// counts them. Tells the user which classes of spec.classes or spec.class_names have no image. Throws Error(data)
  /// for a folder without an image if neither of them says what the classes are, and if there is no image at all.
  explicit ImageFolder(const DatasetSpec& spec);
  size_t size() const override { return files_.size(); }
  int channels() const override { return channels_; }
  int label(size_t index) const override { return files_.at(index).label; }
  Image read(size_t index) const override;
  std::optional<std::string> file(size_t index) const override;
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::string describe(size_t index) const override;
  std::optional<PictureHeader> header(size_t index) const override;
  Orientation orientation() const override { return orientation_; }
  std::vector<std::string> notes() const override { return left_out_.notes(root_); }

 private:
  struct File {
    int label = 0;
    std::string name;               ///< below root_, or in the archive
    uint64_t offset = 0, size = 0;  ///< in the archive
  };
  void list_folder(const std::string& split, bool listed);  ///< listed: the classes are known
  void list_class(const std::string& name);
  void list_archive(const std::string& split);
  std::string contents(size_t index, uint64_t most) const;
  /// Sets the class names to those of `spec`, else to the sorted `found`, and the labels of files_ from their folders.
  void label_files(const DatasetSpec& spec, std::vector<std::string> found);

  std::string root_;
  int channels_;
  Orientation orientation_;
  std::shared_ptr<const TarFile> archive_;
  std::vector<File> files_;
  LeftOut left_out_;
  std::vector<std::string> class_names_;
};

}  // namespace octet
