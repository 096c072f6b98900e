// SPDX-License-Identifier: Apache-2.0
#include "kernels/conv/cuda_repack.h"
#include "kernels/core/launch.cuh"
#include "kernels/training/weight_table.cuh"

namespace octet::kernels {
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
