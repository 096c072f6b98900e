// SPDX-License-Identifier: Apache-2.0
// The files of a data set that lie in several folders, on disk or inside a .tar.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/data/image_files.h"

namespace octet {

class FileTree {
 public:
  /// root: a folder, which need not exist, or a .tar. Throws Error(data) for a damaged archive and a compressed one.
  explicit FileTree(const std::string& root);

  // Names lie below the root and may have "." and ".." in them. In an archive they may also lie below folders around
  // all of its files, "CamVid/" in one that was made of that folder.

  bool is_file(const std::string& name) const;
  bool is_folder(const std::string& name) const;
  bool in_archive() const { return archive_ != nullptr; }

  /// Returns a file, or what messages call it.
  StoredFile file(const std::string& name) const;
  std::string describe(const std::string& name) const { return file(name).name; }

  /// Returns the images in a folder and in all folders within it, sorted by name. Counts the other files, but hidden
  /// ones.
  std::vector<StoredFile> images(const std::string& folder, LeftOut& left_out) const;

 private:
  std::string in_archive(const std::string& name) const;

  std::string root_;
  std::shared_ptr<const TarFile> archive_;   ///< null: a folder
  std::map<std::string, StoredFile> files_;  ///< of the archive, by name without "./"
  std::set<std::string> folders_;            ///< of the archive
  std::vector<std::string> tops_ = {""};     ///< folders around all files: "", "CamVid/", "CamVid/data/"
};

}  // namespace octet
