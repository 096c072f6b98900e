// JPEG, PNG, BMP and WebP files in class folders, on disk or inside a .tar.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/tar_index.h"

namespace octet {

class ImageFolder : public Dataset {
 public:
  /// path/split/CLASS/FILE, or members split/CLASS/FILE of the .tar at path, also below one folder that holds all of
  /// it. Files with other endings than pictures have, and folders within class folders, are left out: notes() counts
  /// them. A class of spec.classes or spec.class_names without an image is a note to the user; with neither, where an
  /// empty folder may or may not be a class, it is an error, as is no image at all.
  explicit ImageFolder(const DatasetSpec& spec);
  size_t size() const override { return files_.size(); }
  int channels() const override { return channels_; }
  int label(size_t index) const override { return files_.at(index).label; }
  Image read(size_t index) const override;
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::string describe(size_t index) const override;
  std::optional<PictureHeader> header(size_t index) const override;
  Orientation orientation() const override { return orientation_; }
  std::vector<std::string> notes() const override;

 private:
  struct File {
    int label = 0;
    std::string name;               ///< below root_ or in the archive
    uint64_t offset = 0, size = 0;  ///< in the archive
  };
  /// What is not read, counted by its kind: ".tiff", "folder in a class folder"; and the first of each.
  struct LeftOut {
    long count = 0;
    std::string first;
  };
  void list_folder(const std::string& split, bool listed);  ///< listed: it is known what the classes are
  void list_class(const std::string& name);
  void list_archive(const std::string& split);
  void leave_out(const std::string& kind, const std::string& name);
  std::string left_out() const;                             ///< ": left out: .tiff 3 (cat/a.tiff)", or ""
  std::string contents(size_t index, uint64_t most) const;  ///< of the file, the first `most` bytes at most
  /// Class names as `spec` has them (else the sorted `found`), labels of files_ from their folders.
  void label_files(const DatasetSpec& spec, std::vector<std::string> found);

  std::string root_;
  int channels_;
  Orientation orientation_;
  std::unique_ptr<TarFile> archive_;
  std::vector<File> files_;
  std::map<std::string, LeftOut> left_out_;
  std::vector<std::string> class_names_;
};

}  // namespace octet
