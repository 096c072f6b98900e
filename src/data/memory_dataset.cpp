// SPDX-License-Identifier: Apache-2.0
#include "src/data/memory_dataset.h"

#include <fmt/format.h>
#include <zlib.h>

#include <filesystem>

#include "src/base/error.h"
#include "src/base/files.h"

namespace octet {
namespace {

constexpr uint32_t kLabelsMagic = 0x0801, kImagesMagic = 0x0803;  // type uint8, 1 and 3 dimensions
constexpr uint32_t kMnistSide = 28;
constexpr size_t kChunk = size_t{1} << 20;

/// Reads a gzipped or plain file in pieces, so that memory grows with the data that is there, not with the size that
/// the header announces.
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

  /// Returns the next `size` bytes, after which the file must end.
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

/// Returns the path folder/stem or folder/stem.gz. Throws Error(data) if there is neither.
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

constexpr size_t kCifarSide = 32, kCifarPlane = kCifarSide * kCifarSide, kCifarChannels = 3;

const std::vector<std::string> kCifar10 = {"airplane", "automobile", "bird",  "cat",  "deer",
                                           "dog",      "frog",       "horse", "ship", "truck"};

// The fine labels in alphabetical order, as in fine_label_names.txt.
const std::vector<std::string> kCifar100 = {
    "apple",      "aquarium_fish", "baby",         "bear",       "beaver",      "bed",         "bee",
    "beetle",     "bicycle",       "bottle",       "bowl",       "boy",         "bridge",      "bus",
    "butterfly",  "camel",         "can",          "castle",     "caterpillar", "cattle",      "chair",
    "chimpanzee", "clock",         "cloud",        "cockroach",  "couch",       "crab",        "crocodile",
    "cup",        "dinosaur",      "dolphin",      "elephant",   "flatfish",    "forest",      "fox",
    "girl",       "hamster",       "house",        "kangaroo",   "keyboard",    "lamp",        "lawn_mower",
    "leopard",    "lion",          "lizard",       "lobster",    "man",         "maple_tree",  "motorcycle",
    "mountain",   "mouse",         "mushroom",     "oak_tree",   "orange",      "orchid",      "otter",
    "palm_tree",  "pear",          "pickup_truck", "pine_tree",  "plain",       "plate",       "poppy",
    "porcupine",  "possum",        "rabbit",       "raccoon",    "ray",         "road",        "rocket",
    "rose",       "sea",           "seal",         "shark",      "shrew",       "skunk",       "skyscraper",
    "snail",      "snake",         "spider",       "squirrel",   "streetcar",   "sunflower",   "sweet_pepper",
    "table",      "tank",          "telephone",    "television", "tiger",       "tractor",     "train",
    "trout",      "tulip",         "turtle",       "wardrobe",   "whale",       "willow_tree", "wolf",
    "woman",      "worm"};

MemoryImages read_files(const std::string& folder, const std::vector<std::string>& files, const CifarLayout& layout) {
  MemoryImages images;
  images.height = images.width = kCifarSide;
  images.channels = kCifarChannels;
  images.name = (std::filesystem::path(folder) / files.front()).string();
  std::vector<std::string> paths;
  uintmax_t bytes = 0;
  for (const std::string& file : files) {
    paths.push_back((std::filesystem::path(folder) / file).string());
    if (!std::filesystem::is_regular_file(paths.back())) {
      throw data_error(paths.back() + ": no such file; point data.path at the folder of CIFAR's binary version");
    }
    bytes += std::filesystem::file_size(paths.back());
  }
  images.pixels.reserve(bytes);  // somewhat more than the pixels take
  for (const std::string& path : paths) append_cifar_records(read_file(path), layout, path, images);
  return images;
}

}  // namespace

MemoryImages read_idx_pair(const std::string& images_path, const std::string& labels_path, size_t classes) {
  MemoryImages result;
  result.name = std::filesystem::path(images_path).filename().string();
  IdxFile images(images_path);
  check_magic(images.read_word(), kImagesMagic, images_path);
  const uint32_t count = images.read_word(), height = images.read_word(), width = images.read_word();
  if (count == 0) throw data_error(images_path + ": has no image");
  if (height != kMnistSide || width != kMnistSide) {
    throw data_error(fmt::format("{}: images of {}x{}, MNIST's are 28x28", images_path, height, width));
  }
  result.height = result.width = kMnistSide;
  result.channels = 1;
  result.pixels = images.read_rest(size_t{count} * kMnistSide * kMnistSide);

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

void append_cifar_records(const std::string& bytes, const CifarLayout& layout, const std::string& name,
                          MemoryImages& images) {
  const size_t record = layout.label_bytes + kCifarChannels * kCifarPlane, count = bytes.size() / record;
  if (count == 0 || bytes.size() % record != 0) {
    throw data_error(
        fmt::format("{}: {} bytes are not whole records of {}; fetch it again", name, bytes.size(), record));
  }
  const size_t before = images.pixels.size();
  images.pixels.resize(before + count * kCifarChannels * kCifarPlane);
  uint8_t* out = images.pixels.data() + before;
  for (size_t i = 0; i < count; ++i) {
    const auto* source = reinterpret_cast<const uint8_t*>(bytes.data()) + i * record;
    const uint8_t label = source[layout.label_bytes - 1];
    if (label >= layout.classes) {
      throw data_error(fmt::format("{}: label {} of record {} is not below {}", name, label, i, layout.classes));
    }
    images.labels.push_back(label);
    source += layout.label_bytes;
    for (size_t p = 0; p < kCifarPlane; ++p) {
      for (size_t c = 0; c < kCifarChannels; ++c) *out++ = source[c * kCifarPlane + p];
    }
  }
}

MemoryImages read_cifar10(const std::string& folder, const std::string& split) {
  std::vector<std::string> files = {"test_batch.bin"};
  if (split == "train") {
    files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
  }
  MemoryImages images = read_files(folder, files, {1, 10});
  images.class_names = kCifar10;
  return images;
}

MemoryImages read_cifar100(const std::string& folder, const std::string& split) {
  MemoryImages images = read_files(folder, {split == "train" ? "train.bin" : "test.bin"}, {2, 100});
  images.class_names = kCifar100;
  return images;
}

}  // namespace octet
