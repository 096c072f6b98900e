// SPDX-License-Identifier: Apache-2.0
#include "src/engine/kernel_cache.h"

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "src/base/error.h"
#include "src/base/files.h"

namespace octet {
namespace {

/// Returns the value of an environment variable if it is an absolute path, else "".
std::string absolute_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] == '/' ? value : "";
}

struct Folder {
  std::mutex mutex;
  std::string path;
};
Folder& folder_of_this_process() {
  static Folder folder;
  return folder;
}

/// Returns the path of the key's file.
std::string file_of(const std::string& folder, const std::string& key) { return folder + "/" + sha256(key); }

/// Returns a file's text: the key, to detect a file of another key, the name, and a hash, to detect a damaged file.
std::string contents(const std::string& key, const std::string& name) {
  return key + "\n" + name + "\n" + sha256(key + "\n" + name) + "\n";
}

}  // namespace

std::string kernel_cache_folder() {
  if (const std::string cache = absolute_variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/octet/kernels";
  if (const std::string home = absolute_variable("HOME"); !home.empty()) return home + "/.cache/octet/kernels";
  return "";
}

void set_kernel_cache(const std::string& folder) {
  const std::scoped_lock lock(folder_of_this_process().mutex);
  folder_of_this_process().path = folder;
}

std::string kernel_cache() {
  const std::scoped_lock lock(folder_of_this_process().mutex);
  return folder_of_this_process().path;
}

std::optional<std::string> cached_kernel(const std::string& folder, const std::string& key) {
  if (folder.empty()) return std::nullopt;
  try {
    const std::string text = read_file(file_of(folder, key));
    if (!text.starts_with(key + "\n")) return std::nullopt;
    const size_t begin = key.size() + 1, end = text.find('\n', begin);
    if (end == std::string::npos) return std::nullopt;
    const std::string name = text.substr(begin, end - begin);
    if (text != contents(key, name)) return std::nullopt;
    return name;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void cache_kernel(const std::string& folder, const std::string& key, const std::string& name) {
  if (folder.empty()) return;
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) return;
  try {
    write_file_atomically(file_of(folder, key), contents(key, name));
  } catch (const Error&) {  // a full disk, or a home that must not be written
  }
}

}  // namespace octet
