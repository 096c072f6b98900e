// SPDX-License-Identifier: Apache-2.0
// Finds the layout of packed data by packing numbered weights on the host, and packs weights on the GPU in that layout.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "kernels/conv/cuda_repack.h"
#include "kernels/core/launch.cuh"
#include "kernels/training/weight_table.cuh"
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

namespace {

constexpr int kThreads = 256;

/// Computes multiplier and bias of channel k by the operations of fold() (src/quant/node_constants.cpp), in their
/// order.
__device__ void fold_channel(const RepackedLayer& r, int k) {
  const TrainedLayer& l = r.layer;
  double gain = 1, offset = l.bias != nullptr ? l.bias[k] : 0.0;
  if (l.gamma != nullptr) {
    gain = l.gamma[k] / sqrt(static_cast<double>(l.variance[k]) + l.epsilon);
    offset = l.beta[k] + (offset - l.mean[k]) * gain;
  }
  const float scale = static_cast<float>(l.scale[k] * gain);
  r.constants[k] = static_cast<float>(static_cast<double>(r.x_scale) * scale / r.y_scale);
  r.constants[l.channels + k] = static_cast<float>(static_cast<double>(static_cast<float>(offset)) / r.y_scale);
}

/// A block writes the codes of a channel, their sum at each tap, and the channel's constants.
__global__ void __launch_bounds__(kThreads)
    weight_codes_kernel(const RepackedLayer* layers, const RepackBlock* blocks) {
  __shared__ int32_t sums[kMostRepackedTaps];
  const RepackBlock block = blocks[blockIdx.x];
  const RepackedLayer& r = layers[block.layer];
  const TrainedLayer& l = r.layer;
  const int thread = static_cast<int>(threadIdx.x), taps = r.taps, inputs = l.per_channel / taps;
  if (thread < taps) sums[thread] = 0;
  if (thread == 0) fold_channel(r, block.at);
  __syncthreads();
  const WeightCode code(l.scale[block.at], l.codes);
  const long start = static_cast<long>(block.at) * l.per_channel;
  int tap = 0;
  int32_t sum = 0;
  for (int i = thread; i < l.per_channel; i += kThreads) {
    const float rounded = code.rounded(l.weight[start + i]);
    const int32_t value = clamp_code(rounded, l.codes.lowest, l.codes.highest);
    r.codes[start + i] = static_cast<int8_t>(value);
    const int at = taps == 1 ? 0 : l.channels_last ? i / inputs : i % taps;
    if (at != tap) {
      if (sum != 0) atomicAdd(&sums[tap], sum);
      tap = at;
      sum = 0;
    }
    sum += value;
  }
  if (sum != 0) atomicAdd(&sums[tap], sum);
  __syncthreads();
  if (thread < taps) r.tap_sums[static_cast<long>(block.at) * taps + thread] = sums[thread];
}

__device__ uint32_t repacked(const RepackedLayer& r, const RepackedWord& word) {
  if (word.kind != RepackedWord::start) {
    const float value = r.constants[(word.kind == RepackedWord::bias ? r.layer.channels : 0) + word.channel];
    float scaled = value * word.factor;
    // As scaled_bias() of rounding.h: the sign stays even if the product is too small for a float.
    if (word.kind == RepackedWord::bias && scaled == 0 && value != 0) scaled = copysignf(0x1p-149f, value);
    return __float_as_uint(scaled);
  }
  int32_t sum = 0;
  for (uint64_t left = word.taps; left != 0; left &= left - 1)
    sum += r.tap_sums[static_cast<long>(word.channel) * r.taps + __ffsll(static_cast<long long>(left)) - 1];
  return static_cast<uint32_t>(word.base - r.x_zero_point * sum);
}

/// A block writes kRepackedWords words of packed data: words of codes, or others.
__global__ void __launch_bounds__(kThreads)
    pack_weights_kernel(const RepackedLayer* layers, const RepackBlock* blocks) {
  const RepackBlock block = blocks[blockIdx.x];
  const RepackedLayer& r = layers[block.layer];
  uint32_t* const packed = reinterpret_cast<uint32_t*>(r.packed);
  const bool codes = block.at >= 0;
  const int first = codes ? block.at : -1 - block.at;
  const int end = min(first + kRepackedWords, codes ? r.packed_words : r.word_count);
  for (int i = first + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
    if (!codes) {
      packed[r.words[i].word] = repacked(r, r.words[i]);
      continue;
    }
    const int4 from = reinterpret_cast<const int4*>(r.code)[i];
    if ((from.x & from.y & from.z & from.w) == -1) continue;  // no codes
    const auto byte = [&](int32_t at) { return at < 0 ? 0u : static_cast<uint8_t>(r.codes[at]) + 0u; };
    packed[i] = byte(from.x) | byte(from.y) << 8 | byte(from.z) << 16 | byte(from.w) << 24;
  }
}

}  // namespace

void cuda_repack(const RepackWork& work, CudaStream stream) {
  if (work.channel_blocks == 0) return;
  weight_codes_kernel<<<work.channel_blocks, kThreads, 0, stream>>>(work.layers, work.channels);
  check_launch("weight_codes");
  pack_weights_kernel<<<work.word_blocks, kThreads, 0, stream>>>(work.layers, work.words);
  check_launch("pack_weights");
}

}  // namespace octet::kernels
