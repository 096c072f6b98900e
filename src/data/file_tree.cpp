// SPDX-License-Identifier: Apache-2.0
#include "src/data/file_tree.h"

#include <algorithm>
#include <filesystem>

#include "src/data/image_folder.h"

namespace octet {
namespace {

namespace fs = std::filesystem;

/// Returns "a/b" for "./a/c/../b/".
std::string plain(const std::string& name) {
  std::string path = fs::path(name).lexically_normal().generic_string();
  while (path.ends_with('/')) path.pop_back();
  return path == "." ? "" : path;
}

/// Returns "a/b/" if all files that are not hidden lie in that folder of `top`, "a/"; "" if there is no such folder.
std::string only_folder(const std::map<std::string, StoredFile>& files, const std::string& top) {
  std::string only;
  for (const auto& [name, file] : files) {
    if (is_hidden(name)) continue;
    const size_t slash = name.find('/', top.size());
    const std::string folder = slash == std::string::npos ? "" : name.substr(0, slash + 1);
    if (folder.empty() || (!only.empty() && folder != only)) return "";
    only = folder;
  }
  return only;
}

}  // namespace

FileTree::FileTree(const std::string& root) : root_(root) {
  if (fs::is_directory(root)) return;
  refuse_compressed(root);
  if (ending_of(root) != ".tar" || !fs::exists(root)) return;
  archive_ = std::make_shared<const TarFile>(root);
  for (const TarMember& member : archive_->members()) {
    const std::string name = plain(member.name);
    // Of two members of one name the later one is the file, as tar extracts them.
    files_.insert_or_assign(name, StoredFile{(fs::path(root) / name).string(), archive_, member.offset, member.size});
    for (fs::path folder = fs::path(name).parent_path(); !folder.empty(); folder = folder.parent_path())
      if (!folders_.insert(folder.string()).second) break;
  }
  for (std::string top = only_folder(files_, ""); !top.empty(); top = only_folder(files_, top)) tops_.push_back(top);
}

/// Returns the whole name of a file or folder of the archive; the name as it is if there is none.
std::string FileTree::in_archive(const std::string& name) const {
  for (const std::string& top : tops_) {
    const std::string whole = plain(top + name);
    if (whole.empty() || files_.contains(whole) || folders_.contains(whole)) return whole;
  }
  return plain(name);
}

bool FileTree::is_file(const std::string& name) const {
  return archive_ ? files_.contains(in_archive(name)) : fs::is_regular_file(describe(name));
}

bool FileTree::is_folder(const std::string& name) const {
  if (!archive_) return fs::is_directory(describe(name));
  const std::string whole = in_archive(name);
  return whole.empty() || folders_.contains(whole);
}

StoredFile FileTree::file(const std::string& name) const {
  if (!archive_) return {(fs::path(root_) / name).lexically_normal().string(), nullptr, 0, 0};
  const std::string whole = in_archive(name);
  const auto found = files_.find(whole);
  return found == files_.end() ? StoredFile{(fs::path(root_) / whole).string(), archive_, 0, 0} : found->second;
}

std::vector<StoredFile> FileTree::images(const std::string& folder, LeftOut& left_out) const {
  std::vector<StoredFile> found;
  if (!archive_) {
    add_images_below(describe(folder), found, left_out);
  } else {
    const std::string whole = in_archive(folder), below = whole.empty() ? "" : whole + "/";
    for (auto at = files_.lower_bound(below); at != files_.end() && at->first.starts_with(below); ++at) {
      const std::string inner = at->first.substr(below.size());
      if (inner.starts_with('.') || inner.find("/.") != std::string::npos) continue;
      if (is_picture(inner))
        found.push_back(at->second);
      else
        left_out.add(ending_of(inner), inner);
    }
  }
  std::sort(found.begin(), found.end(), [](const StoredFile& a, const StoredFile& b) { return a.name < b.name; });
  return found;
}

}  // namespace octet
