// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same on every machine, which those of the standard library's distributions are not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <utility>
#include <vector>

namespace octet {

/// SplitMix64's step and mix (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
inline constexpr uint64_t kSplitMixStep = 0x9E3779B97F4A7C15ull;
inline uint64_t split_mix(uint64_t x) {
  uint64_t z = x + kSplitMixStep;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

/// A SplitMix64 generator.
class Random {
 public:
  /// Starts the stream that these keys name, for example {seed, epoch, position}.
  explicit Random(std::initializer_list<uint64_t> keys) {
    for (const uint64_t key : keys) state_ = next() ^ (key * 0xD1342543DE82EF95ull + 1);
  }

  uint64_t next() {
    const uint64_t mixed = split_mix(state_);
    state_ += kSplitMixStep;
    return mixed;
  }

  /// Returns a number uniform in 0 .. count - 1; the bias of the multiplication is below count / 2^32.
  uint32_t below(uint32_t count) { return static_cast<uint32_t>(((next() >> 32) * count) >> 32); }

  /// Returns a number uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }

  /// Shuffles by Fisher and Yates.
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(static_cast<uint32_t>(i))]);
  }

 private:
  uint64_t state_ = 0;
};

/// Returns 0 .. count - 1 in the random order that these keys name.
inline std::vector<size_t> shuffled_indices(size_t count, std::initializer_list<uint64_t> keys) {
  std::vector<size_t> indices(count);
  std::iota(indices.begin(), indices.end(), size_t{0});
  Random(keys).shuffle(indices);
  return indices;
}

}  // namespace octet
