#include <fmt/format.h>

#include <filesystem>

#include "src/common/error.h"
#include "src/common/files.h"
#include "src/data/memory_dataset.h"

namespace octet {
namespace {

constexpr size_t kSide = 32, kPlane = kSide * kSide, kChannels = 3;

const std::vector<std::string> kCifar10 = {"airplane", "automobile", "bird",  "cat",  "deer",
                                           "dog",      "frog",       "horse", "ship", "truck"};

// Fine labels, alphabetical, as in fine_label_names.txt.
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
  images.height = images.width = kSide;
  images.channels = kChannels;
  images.name = (std::filesystem::path(folder) / files.front()).string();
  for (const std::string& file : files) {
    const std::string path = (std::filesystem::path(folder) / file).string();
    if (!std::filesystem::is_regular_file(path)) {
      throw data_error(path + ": no such file; point data.path at the folder of CIFAR's binary version");
    }
    append_cifar_records(read_file(path), layout, path, images);
  }
  return images;
}

}  // namespace

void append_cifar_records(const std::string& bytes, const CifarLayout& layout, const std::string& name,
                          MemoryImages& images) {
  const size_t record = layout.label_bytes + kChannels * kPlane, count = bytes.size() / record;
  if (count == 0 || bytes.size() % record != 0) {
    throw data_error(
        fmt::format("{}: {} bytes are not whole records of {}; fetch it again", name, bytes.size(), record));
  }
  size_t at = images.pixels.size();
  images.pixels.resize(at + count * kChannels * kPlane);
  for (size_t i = 0; i < count; ++i) {
    const auto* source = reinterpret_cast<const uint8_t*>(bytes.data()) + i * record;
    const uint8_t label = source[layout.label_bytes - 1];
    if (label >= layout.classes) {
      throw data_error(fmt::format("{}: label {} of record {} is not below {}", name, label, i, layout.classes));
    }
    images.labels.push_back(label);
    source += layout.label_bytes;
    for (size_t p = 0; p < kPlane; ++p) {
      for (size_t c = 0; c < kChannels; ++c) images.pixels[at++] = source[c * kPlane + p];
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
