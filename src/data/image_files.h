// SPDX-License-Identifier: Apache-2.0
// What data sets of image files stand on: which files of a folder or a .tar are images, and what is left out; lists of
// images.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/file_tree.h"

namespace octet {

/// Returns ".png" for "a/b.PNG"; "files without an ending" for a file that has none.
std::string ending_of(const std::string& name);

/// Whether the file ends as JPEG, PNG, BMP and WebP files do.
bool is_image(const std::string& name);

/// Whether it is one of the files that systems add to folders: .DS_Store, ._a.jpg and the like.
bool is_hidden(const std::string& name);

/// Throws Error(data) for archives whose members cannot be read in any order: .tar.gz, .zip and the like.
void refuse_compressed(const std::string& path);

/// Counts by kind (".tiff", "files without an ending") the files that are not read.
class LeftOut {
 public:
  void add(const std::string& kind, const std::string& name);
  void clear() { kinds_.clear(); }
  /// Returns ": left out: .tiff 3 (cat/a.tiff)", with the first name of each kind, or "".
  std::string text() const;
  /// Returns the note to the user about a folder or archive, or none.
  std::vector<std::string> notes(const std::string& root) const;

 private:
  struct Kind {
    long count = 0;
    std::string first;
  };
  std::map<std::string, Kind> kinds_;
};

/// Adds the images in a folder on disk and in all folders within it, in any order; counts the other files, but hidden
/// ones.
void add_images_below(const std::string& path, std::vector<StoredFile>& images, LeftOut& left_out);

/// Returns an image's header; contents(most) gives the first `most` bytes of its file, `name` stands in messages.
ImageHeader header_of(const std::function<std::string(uint64_t most)>& contents, const std::string& name);

/// Images without labels, for calibration: files of any folders and archives, each with label 0. Data sets with masks
/// or boxes for their files derive from it.
class ImageList : public Dataset {
 public:
  /// Each of `paths` is a folder, which is read with all folders within it; a .tar; an image file; or a pattern of
  /// such names with *, ? and [] (glob(7)). Files are sorted by name within a path; hidden ones and other kinds of
  /// files are left out, see notes(). Throws Error(data) for a path that does not exist or holds no image.
  ImageList(const std::vector<std::string>& paths, int channels, Orientation orientation);
  size_t size() const override { return files_.size(); }
  int channels() const override { return channels_; }
  int label(size_t) const override { return 0; }
  Image read(size_t index) const override;
  std::optional<std::string> file(size_t index) const override { return files_.at(index).read(); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::string describe(size_t index) const override { return files_.at(index).name; }
  std::optional<ImageHeader> header(size_t index) const override;
  Orientation orientation() const override { return orientation_; }
  std::vector<std::string> notes() const override { return notes_; }

 protected:
  /// A derived class fills in the members below.
  explicit ImageList(const DatasetSpec& spec) : channels_(spec.channels), orientation_(spec.orientation) {}
  std::vector<StoredFile> files_;
  std::vector<std::string> class_names_, notes_;

 private:
  void add(const std::string& path);
  void add_archive(const std::string& path, LeftOut& left_out);

  int channels_;
  Orientation orientation_;
};

}  // namespace octet
