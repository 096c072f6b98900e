// SPDX-License-Identifier: Apache-2.0
// Annotations of boxes: the same bytes as COCO's JSON, as Pascal VOC's XML and list, and as YOLO's text beside an
// image.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/data/box_annotations.h"
#include "src/data/image_files.h"

namespace {

/// A folder of this process with an image, the bytes beside it.
class Folder {
 public:
  Folder() : path_("/dev/shm/octet_fuzz_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path_ + "/images");
    octet::write_file_atomically(path_ + "/images/a.png", octet::encode_png({2, 3, 1, {1, 2, 3, 4, 5, 6}}));
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  void write(const std::string& bytes) const {
    for (const char* name : {"/labels/a.txt", "/labels/a.xml"}) octet::write_file_atomically(path_ + name, bytes);
  }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

template <class Read>
void try_to(const Read& read) {
  try {
    read();
  } catch (const octet::Error& error) {
    if (error.code() != octet::ExitCode::data) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  std::filesystem::create_directories(folder.path() + "/labels");
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  folder.write(bytes);
  const octet::FileTree tree(folder.path());
  for (const bool leave_out : {false, true}) {
    try_to([&] { octet::parse_coco(bytes, "fuzz.json", leave_out); });
    try_to([&] { octet::read_voc(tree, "labels", {"a"}, {}, leave_out); });
    try_to([&] { octet::read_voc(tree, "labels", {"a"}, {"cell"}, leave_out); });
    try_to([&] {
      const octet::ImageList images({folder.path() + "/images"}, 1, octet::Orientation::as_stored);
      octet::read_yolo(images, tree, "images", "labels", {"cell", "dog"}, leave_out);
    });
  }
  try_to([&] { octet::read_voc_list(tree.file("labels/a.txt")); });
  return 0;
}
