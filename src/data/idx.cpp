#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>

#include "src/common/error.h"
#include "src/data/memory_dataset.h"

namespace octet {
namespace {

constexpr uint32_t kLabelsMagic = 0x0801, kImagesMagic = 0x0803;  // type uint8, 1 and 3 dimensions
constexpr uint32_t kSide = 28;
constexpr size_t kChunk = size_t{1} << 20;

/// Reads a gzipped or plain file piece by piece, so that memory grows with the data that is really there.
class IdxFile {
 public:
  explicit IdxFile(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (file_ == nullptr) throw data_error(path + ": cannot open");
    gzbuffer(file_, 1 << 17);
  }
  ~IdxFile() { gzclose(file_); }
  IdxFile(const IdxFile&) = delete;
  IdxFile& operator=(const IdxFile&) = delete;

  uint32_t read_word() {
    uint8_t bytes[4];
    if (read(bytes, 4) != 4) throw data_error(path_ + ": ends inside the header; fetch it again");
    return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
  }

  /// Exactly `size` bytes and then the end of the file.
  std::vector<uint8_t> read_rest(size_t size) {
    std::vector<uint8_t> data;
    while (data.size() < size) {
      const size_t start = data.size(), wanted = std::min(kChunk, size - start);
      data.resize(start + wanted);
      const size_t got = read(data.data() + start, wanted);
      if (got != wanted) {
        throw data_error(
            fmt::format("{}: has {} bytes of data, its header announces {}; fetch it again", path_, start + got, size));
      }
    }
    uint8_t more = 0;
    if (read(&more, 1) != 0) {
      throw data_error(fmt::format("{}: goes on after the {} bytes that its header announces", path_, size));
    }
    return data;
  }

 private:
  size_t read(uint8_t* target, size_t size) {
    const int got = gzread(file_, target, static_cast<unsigned>(size));
    int code = Z_OK;
    const char* message = gzerror(file_, &code);
    // Z_BUF_ERROR: the compressed stream is cut off; without this check it would look like a short plain file.
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) throw data_error(path_ + ": corrupt: " + message);
    return static_cast<size_t>(got);
  }

  const std::string& path_;
  gzFile file_;
};

void check_magic(uint32_t magic, uint32_t expected, const std::string& path) {
  if (magic == expected) return;
  throw data_error(fmt::format("{}: magic {:08x}, idx {} have {:08x}", path, magic,
                               expected == kImagesMagic ? "images" : "labels", expected));
}

/// folder/stem or folder/stem.gz.
std::string find_file(const std::string& folder, const std::string& stem) {
  for (const char* ending : {"", ".gz"}) {
    const std::string path = (std::filesystem::path(folder) / (stem + ending)).string();
    if (std::filesystem::is_regular_file(path)) return path;
  }
  throw data_error(
      fmt::format("{}/{}[.gz]: no such file; point data.path at the folder of the idx files "
                  "(Fashion-MNIST: apt-get install dataset-fashion-mnist)",
                  folder, stem));
}

}  // namespace

MemoryImages read_idx_pair(const std::string& images_path, const std::string& labels_path, size_t classes) {
  MemoryImages result;
  result.name = std::filesystem::path(images_path).filename().string();
  IdxFile images(images_path);
  check_magic(images.read_word(), kImagesMagic, images_path);
  const uint32_t count = images.read_word(), height = images.read_word(), width = images.read_word();
  if (count == 0) throw data_error(images_path + ": has no image");
  if (height != kSide || width != kSide) {
    throw data_error(fmt::format("{}: pictures of {}x{}, MNIST's are 28x28", images_path, height, width));
  }
  result.height = result.width = kSide;
  result.channels = 1;
  result.pixels = images.read_rest(size_t{count} * kSide * kSide);

  IdxFile labels(labels_path);
  check_magic(labels.read_word(), kLabelsMagic, labels_path);
  const uint32_t label_count = labels.read_word();
  if (label_count != count) {
    throw data_error(
        fmt::format("{}: {} labels for the {} images of {}", labels_path, label_count, count, images_path));
  }
  result.labels = labels.read_rest(label_count);
  for (size_t i = 0; i < result.labels.size(); ++i) {
    if (result.labels[i] >= classes) {
      throw data_error(
          fmt::format("{}: label {} of image {} is not below {}", labels_path, result.labels[i], i, classes));
    }
  }
  return result;
}

MemoryImages read_idx_folder(const std::string& folder, const std::string& split,
                             std::vector<std::string> class_names) {
  const std::string stem = split == "train" ? "train" : "t10k";
  MemoryImages images = read_idx_pair(find_file(folder, stem + "-images-idx3-ubyte"),
                                      find_file(folder, stem + "-labels-idx1-ubyte"), class_names.size());
  images.class_names = std::move(class_names);
  return images;
}

}  // namespace octet
