// SPDX-License-Identifier: Apache-2.0
// Convolutions whose weights train: packed data (cuda_conv2d_pack()) that the GPU makes of float weights and their
// scales, with the bytes that the host would make of the converted layer.
//
// No family packs twice for this. How a kernel's data are laid out is found once by packing numbered weights on the
// host; the GPU then only moves codes.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/conv/conv2d.h"

namespace octet::kernels {

inline constexpr int kMostRepackedTaps = 64;  ///< RepackedWord::taps has a bit for each

/// A word of packed data that is no code: a channel's multiplier or bias times `factor`, or the start of a sum, base -
/// (zero point of x) * (sum of the channel's weights at the taps whose bits are set).
struct RepackedWord {
  enum Kind : int32_t { multiplier, bias, start };
  int32_t word = 0;  ///< index of these four bytes
  Kind kind = multiplier;
  int32_t channel = 0;
  float factor = 1;
  uint64_t taps = 0;
  int32_t base = 0;
};

/// Where the bytes of packed data come from.
struct CudaRepacking {
  std::vector<uint8_t> fixed;       ///< the packed data where all weights, multipliers and biases are 0
  std::vector<int32_t> code;        ///< by byte: index of its weight in [K, R, S, C / groups], or -1
  std::vector<RepackedWord> words;  ///< all words that depend on weights, multipliers or biases otherwise
};

/// Finds it for a dense kernel with at most kMostRepackedTaps taps. Throws Error(promise) if the data are laid out in
/// another way.
CudaRepacking cuda_repacking(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params);

/// A conv2d or linear with the parameters that it has in training. All pointers are on the device; those of a layer
/// without BatchNorm, or without bias, are null.
struct TrainedLayer {
  const float* weight = nullptr;  ///< [K, per_channel] in memory's order
  const float* scale = nullptr;   ///< [K]
  const float* bias = nullptr;    ///< [K]
  const float *gamma = nullptr, *beta = nullptr, *mean = nullptr, *variance = nullptr;  ///< [K], of its BatchNorm
  double epsilon = 0;
  WeightCodes codes;
  int32_t channels = 0, per_channel = 0;
  /// A channel is [C / groups, places] in memory, PyTorch's order, or [places, C / groups] if channels-last. Places are
  /// R * S, or the pixels of the flattened image that a linear reads.
  int32_t places = 1;
  bool channels_last = false;
};

/// What the GPU needs to pack a layer; an array of these lies in device memory, as do all that they point to.
struct RepackedLayer {
  TrainedLayer layer;
  float x_scale = 1, y_scale = 1;  ///< of the codes of input and output; 1 for floats
  int32_t x_zero_point = 0, taps = 1;
  const int32_t* code = nullptr;  ///< CudaRepacking::code, as indices into memory's order
  const RepackedWord* words = nullptr;
  int8_t* codes = nullptr;      ///< scratch [K, per_channel]
  int32_t* tap_sums = nullptr;  ///< scratch [K, taps]
  float* constants = nullptr;   ///< scratch [2, K]: multipliers, biases
  uint8_t* packed = nullptr;    ///< holds CudaRepacking::fixed; the rest is written
  int32_t packed_words = 0, word_count = 0;
};

/// The blocks that pack `layers`, an array in host memory: of the first kernel {layer, channel}, of the second {layer,
/// first of kRepackedWords packed words} or {layer, -1 - first of so many RepackedWords}.
struct RepackBlock {
  int32_t layer = 0, at = 0;
};
inline constexpr int kRepackedWords = 1024;
std::vector<RepackBlock> repack_channel_blocks(const std::vector<RepackedLayer>& layers);
std::vector<RepackBlock> repack_word_blocks(const std::vector<RepackedLayer>& layers);

/// All in device memory.
struct RepackWork {
  const RepackedLayer* layers = nullptr;
  const RepackBlock *channels = nullptr, *words = nullptr;
  int channel_blocks = 0, word_blocks = 0;
};

/// Packs all layers, with two launches. Multipliers and biases are those of fold() (src/quant/node_constants.h), bit
/// for bit.
void cuda_repack(const RepackWork& work, CudaStream stream);

}  // namespace octet::kernels
