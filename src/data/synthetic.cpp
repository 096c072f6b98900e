#include "src/data/synthetic.h"

#include <algorithm>
#include <cstdlib>

#include "src/common/random.h"

namespace octet {
namespace {

/// Triangle wave of period 256: 0 .. 255, from the phase's low byte.
int triangle(int phase) { return std::min(255, 2 * std::abs((phase & 255) - 128)); }

}  // namespace

SyntheticDataset::SyntheticDataset(const DatasetSpec& spec) : spec_(spec) {
  for (int i = 0; i < spec.synthetic_classes; ++i) class_names_.push_back("pattern" + std::to_string(i));
}

Image SyntheticDataset::read(size_t index) const {
  // The stripes of a class do not depend on the split or the seed, so that training and validation agree.
  Random pattern({0, static_cast<uint64_t>(label(index))});
  const int dx = static_cast<int>(pattern.below(97)) - 48, dy = static_cast<int>(pattern.below(97)) - 48;
  int contrast[3];
  for (int& c : contrast) c = 40 + static_cast<int>(pattern.below(80));

  Random random({spec_.seed, spec_.split == "train" ? 1u : 2u, index});
  const int place = static_cast<int>(random.below(256)), brightness = static_cast<int>(random.below(60));
  const int side = spec_.image_size, channels = spec_.channels;
  Image image{side, side, channels, std::vector<uint8_t>(static_cast<size_t>(side) * side * channels)};
  uint8_t* out = image.pixels.data();
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      const int wave = triangle(place + dx * x + dy * y);
      for (int c = 0; c < channels; ++c) {
        const int noise = static_cast<int>(random.below(64));
        *out++ = static_cast<uint8_t>(std::min(255, brightness + wave * contrast[c] / 128 + noise));
      }
    }
  }
  return image;
}

std::string SyntheticDataset::describe(size_t index) const {
  return "synthetic " + spec_.split + "[" + std::to_string(index) + "]";
}

}  // namespace octet
