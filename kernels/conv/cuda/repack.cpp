// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "kernels/conv/cuda_repack.h"
#include "src/base/error.h"

namespace octet::kernels {
namespace {

constexpr int kDigitBits = 7, kDigits = 4;  // numbers are written as weights of so many bits

/// Packs weights and constants that are all 0 but for what a caller sets.
class Packer {
 public:
  Packer(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params)
      : conv_(conv),
        shape_(shape),
        params_(params),
        taps_(shape.kernel_h * shape.kernel_w),
        group_c_(shape.in_c / shape.groups),
        weight(static_cast<size_t>(shape.out_c) * taps_ * group_c_),
        multiplier(shape.out_c),
        bias(shape.out_c) {}

  std::vector<uint8_t> packed(int32_t zero_point) {
    params_.x.zero_point = zero_point;
    return cuda_conv2d_pack(conv_, shape_, params_, {weight.data(), multiplier.data(), bias.data()});
  }
  /// Sets the weight of each channel at a tap's first input channel to value(channel).
  template <class F>
  void set_tap(int tap, const F& value) {
    for (int k = 0; k < shape_.out_c; ++k)
      weight[(static_cast<size_t>(k) * taps_ + tap) * group_c_] = static_cast<int8_t>(value(k));
  }
  int taps() const { return taps_; }
  int inputs() const { return group_c_; }

 private:
  const CudaConv2d& conv_;
  const Conv2dShape& shape_;
  Conv2dParams params_;
  int taps_, group_c_;

 public:
  std::vector<int8_t> weight;
  std::vector<float> multiplier, bias;
};

template <class T>
T word_at(const std::vector<uint8_t>& packed, size_t word) {
  T value;
  std::memcpy(&value, &packed[word * 4], 4);
  return value;
}

Error not_found(const CudaConv2d& conv, const char* what) {
  return promise_error("cuda convolution: " + conv.name + ": " + what + " cannot be found in its packed data");
}

int digit(uint32_t number, int d) { return static_cast<int>(number >> (d * kDigitBits)) & ((1 << kDigitBits) - 1); }

/// Finds the bytes that are codes: zero points of 0 leave no other trace of weights.
void find_codes(Packer& packer, const CudaConv2d& conv, CudaRepacking& found) {
  std::vector<uint32_t> number(found.fixed.size());
  std::vector<bool> moved(found.fixed.size());
  for (int d = 0; d < kDigits; ++d) {
    for (size_t i = 0; i < packer.weight.size(); ++i)
      packer.weight[i] = static_cast<int8_t>(digit(static_cast<uint32_t>(i + 1), d));
    const std::vector<uint8_t> packed = packer.packed(0);
    for (size_t byte = 0; byte < packed.size(); ++byte) {
      moved[byte] = moved[byte] || packed[byte] != found.fixed[byte];
      number[byte] |= static_cast<uint32_t>(packed[byte] & 127) << (d * kDigitBits);
    }
  }
  std::fill(packer.weight.begin(), packer.weight.end(), 0);
  found.code.assign(found.fixed.size(), -1);
  for (size_t byte = 0; byte < number.size(); ++byte) {
    if (!moved[byte]) continue;
    if (found.fixed[byte] != 0 || number[byte] > packer.weight.size()) throw not_found(conv, "a weight");
    found.code[byte] = static_cast<int32_t>(number[byte]) - 1;
  }
}

/// Finds the starts of sums, which a zero point of 1 moves by the sum of weights.
void find_starts(Packer& packer, const CudaConv2d& conv, CudaRepacking& found) {
  const size_t words = found.fixed.size() / 4;
  for (int tap = 0; tap < packer.taps(); ++tap) packer.set_tap(tap, [](int) { return 1; });
  const std::vector<uint8_t> ones = packer.packed(1);
  std::vector<RepackedWord> starts;
  for (size_t word = 0; word < words; ++word) {
    const int32_t base = word_at<int32_t>(found.fixed, word);
    const bool codes = found.code[word * 4] >= 0 || found.code[word * 4 + 1] >= 0 || found.code[word * 4 + 2] >= 0 ||
                       found.code[word * 4 + 3] >= 0;
    if (codes || word_at<int32_t>(ones, word) == base) continue;
    starts.push_back({.word = static_cast<int32_t>(word), .kind = RepackedWord::start, .base = base});
  }
  for (int tap = 0; tap < packer.taps(); ++tap) packer.set_tap(tap, [](int) { return 0; });
  for (int tap = 0; tap < packer.taps(); ++tap) {
    packer.set_tap(tap, [](int) { return 1; });
    const std::vector<uint8_t> packed = packer.packed(1);
    for (RepackedWord& start : starts)
      if (word_at<int32_t>(packed, start.word) != start.base) start.taps |= uint64_t{1} << tap;
    packer.set_tap(tap, [](int) { return 0; });
  }
  for (int d = 0; d < kDigits; ++d) {
    for (int tap = 0; tap < packer.taps(); ++tap) packer.set_tap(tap, [&](int k) { return digit(k, d); });
    const std::vector<uint8_t> packed = packer.packed(1);
    for (RepackedWord& start : starts) {
      const int32_t sum = start.base - word_at<int32_t>(packed, start.word);
      const int count = __builtin_popcountll(start.taps);
      if (count == 0 || sum % count != 0) throw not_found(conv, "the start of a sum");
      start.channel |= sum / count << (d * kDigitBits);
    }
  }
  for (int tap = 0; tap < packer.taps(); ++tap) packer.set_tap(tap, [](int) { return 0; });
  found.words.insert(found.words.end(), starts.begin(), starts.end());
}

/// Finds the words that `values`, multipliers or biases, are written to.
void find_constants(Packer& packer, const CudaConv2d& conv, std::vector<float>& values, RepackedWord::Kind kind,
                    CudaRepacking& found) {
  for (size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(k + 1);
  const std::vector<uint8_t> packed = packer.packed(0);
  std::fill(values.begin(), values.end(), 0.0f);
  std::vector<bool> seen(values.size());
  for (size_t word = 0; word < packed.size() / 4; ++word) {
    const float value = word_at<float>(packed, word);
    if (std::memcmp(&packed[word * 4], &found.fixed[word * 4], 4) == 0) continue;
    const float factor = value < 1 ? 0x1p-16f : 1.0f, number = value / factor;
    if (!(number >= 1) || number > static_cast<float>(values.size()) || number != std::rint(number))
      throw not_found(conv, "a channel's constant");
    const int channel = static_cast<int>(number) - 1;
    seen[channel] = true;
    found.words.push_back({static_cast<int32_t>(word), kind, channel, factor});
  }
  for (const bool each : seen)
    if (!each) throw not_found(conv, "a channel's constant");
}

}  // namespace

CudaRepacking cuda_repacking(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params) {
  Packer packer(conv, shape, params);
  if (packer.taps() > kMostRepackedTaps)
    throw promise_error("cuda convolution: weights of more than 64 taps are not packed on the GPU");
  CudaRepacking found{.fixed = packer.packed(0)};
  if (found.fixed.size() % 4 != 0) throw not_found(conv, "a whole number of words");
  find_codes(packer, conv, found);
  find_starts(packer, conv, found);
  find_constants(packer, conv, packer.multiplier, RepackedWord::multiplier, found);
  find_constants(packer, conv, packer.bias, RepackedWord::bias, found);
  return found;
}

std::vector<RepackBlock> repack_channel_blocks(const std::vector<RepackedLayer>& layers) {
  std::vector<RepackBlock> blocks;
  for (size_t i = 0; i < layers.size(); ++i)
    for (int32_t k = 0; k < layers[i].layer.channels; ++k) blocks.push_back({static_cast<int32_t>(i), k});
  return blocks;
}

std::vector<RepackBlock> repack_word_blocks(const std::vector<RepackedLayer>& layers) {
  std::vector<RepackBlock> blocks;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto layer = static_cast<int32_t>(i);
    for (int32_t at = 0; at < layers[i].packed_words; at += kRepackedWords) blocks.push_back({layer, at});
    for (int32_t at = 0; at < layers[i].word_count; at += kRepackedWords) blocks.push_back({layer, -1 - at});
  }
  return blocks;
}

}  // namespace octet::kernels
