#include <fmt/format.h>

#include "src/common/error.h"
#include "src/data/dataset.h"
#include "src/data/image_folder.h"
#include "src/data/memory_dataset.h"
#include "src/data/synthetic.h"
#include "src/data/synthetic_scenes.h"

namespace octet {
namespace {

const std::vector<std::string> kFashion = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                           "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
const std::vector<std::string> kDigits = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

}  // namespace

Image Dataset::mask(size_t index) const {
  throw usage_error(describe(index) + ": this data set has a class for each picture, none for its pixels");
}

std::unique_ptr<Dataset> open_dataset(const DatasetSpec& spec) {
  const std::string& format = spec.format;
  if (spec.labels == Labels::pixels && format != "synthetic") {
    throw usage_error(
        fmt::format("data.labels: pixels, but {} has a class for each picture; masks come with synthetic", format));
  }
  if (format == "image_folder") return std::make_unique<ImageFolder>(spec);
  if (spec.split != "train" && spec.split != "test") {
    throw usage_error(fmt::format("data: split '{}' of {}; allowed: train, test", spec.split, format));
  }
  if (format == "synthetic") {
    if (spec.labels == Labels::pixels) return std::make_unique<SyntheticScenes>(spec);
    return std::make_unique<SyntheticDataset>(spec);
  }
  const auto in_memory = [](MemoryImages images) { return std::make_unique<MemoryDataset>(std::move(images)); };
  if (format == "fashion_mnist") return in_memory(read_idx_folder(spec.path, spec.split, kFashion));
  if (format == "mnist") return in_memory(read_idx_folder(spec.path, spec.split, kDigits));
  if (format == "cifar10") return in_memory(read_cifar10(spec.path, spec.split));
  if (format == "cifar100") return in_memory(read_cifar100(spec.path, spec.split));
  throw usage_error("data.format: unknown value '" + format + "'");
}

}  // namespace octet
