// Packing happens once, when a network is compiled; it is plain code.
#include "kernels/conv2d_int8/cpu/pack.h"

#include <algorithm>

namespace octet::kernels {
namespace {

/// Vectors of the block that holds a channel of a group.
int block_vectors(const PackedGemm& p, const GemmKernels& kernels, int channel) {
  const int first = channel / p.block_channels * p.block_channels;
  return std::min(p.block_channels, p.padded_channels - first) / kernels.lanes;
}

/// Where a channel of a group is computed: its block's first channel plus its slot.
int slot_of(const PackedGemm& p, const GemmKernels& kernels, int channel) {
  const int pair_channels = 2 * kernels.lanes;
  const int in_block = channel % p.block_channels, pair = in_block / pair_channels;
  if (2 * pair + 1 >= block_vectors(p, kernels, channel)) return channel;  // a single last vector
  int slot = 0;
  while (kernels.pair_order[slot] != in_block % pair_channels) ++slot;
  return channel - in_block % pair_channels + slot;
}

/// The place of (slot, k) within one group's packed weights.
size_t packed_index(const PackedGemm& p, const GemmKernels& kernels, int slot, int k) {
  const int block = slot / p.block_channels, in_block = slot % p.block_channels;
  const int width = block_vectors(p, kernels, slot) * kernels.lanes;
  const size_t block_start = static_cast<size_t>(block) * p.block_channels * p.k;
  return block_start + static_cast<size_t>(k / kernels.k_group) * width * kernels.k_group + in_block * kernels.k_group +
         k % kernels.k_group;
}

}  // namespace

PackedGemm pack_gemm(const Conv2dShape& g, const Conv2dParams& params, const Conv2dWeights& weights,
                     const GemmKernels& kernels, int width) {
  PackedGemm p;
  const int in_channels = g.in_c / g.groups;
  p.tap_bytes = round_up(in_channels, kernels.k_group);
  p.k = g.kernel_h * g.kernel_w * p.tap_bytes;
  p.group_channels = g.out_c / g.groups;
  p.padded_channels = round_up(p.group_channels, kernels.lanes);
  p.block_channels = width * kernels.lanes;
  p.blocks = ceil_div(p.padded_channels, p.block_channels);

  const size_t group_weights = static_cast<size_t>(p.padded_channels) * p.k;
  const size_t constants = static_cast<size_t>(g.groups) * p.padded_channels;
  p.weight = AlignedArray<int8_t>(g.groups * group_weights);
  p.init = AlignedArray<int32_t>(constants);
  p.multiplier = AlignedArray<float>(constants);
  p.bias = AlignedArray<float>(constants);
  std::fill_n(p.weight.data(), g.groups * group_weights, int8_t{0});
  std::fill_n(p.init.data(), constants, 0);
  std::fill_n(p.multiplier.data(), constants, 0.0f);
  std::fill_n(p.bias.data(), constants, 0.0f);

  const int8_t* from = weights.weight;  // [K, R, S, C/groups], read once in order
  for (int channel = 0; channel < g.out_c; ++channel) {
    const int group = channel / p.group_channels, in_group = channel % p.group_channels;
    const int slot = slot_of(p, kernels, in_group);
    int8_t* to = p.weight.data() + group * group_weights;
    int32_t sum = 0;
    for (int tap = 0; tap < g.kernel_h * g.kernel_w; ++tap) {
      for (int c = 0; c < in_channels; ++c, ++from) {
        to[packed_index(p, kernels, slot, tap * p.tap_bytes + c)] = *from;
        sum += *from;
      }
    }
    const size_t i = static_cast<size_t>(group) * p.padded_channels + slot;
    // Unsigned: -zx * sum may leave int32 where the whole accumulator does not; both wrap around to the same bits.
    p.init.data()[i] =
        static_cast<int32_t>(0u - static_cast<uint32_t>(params.x.zero_point) * static_cast<uint32_t>(sum));
    p.multiplier.data()[i] = weights.multiplier[channel];
    p.bias.data()[i] = weights.bias[channel];
  }
  return p;
}

Epilogue make_epilogue(const Conv2dParams& params) {
  Epilogue e;
  e.low = static_cast<float>(params.y.clamp_min - params.y.zero_point);
  e.high = static_cast<float>(params.y.clamp_max - params.y.zero_point);
  e.zero_point = params.y.zero_point;
  e.clamp_min = params.y.clamp_min;
  e.float_output = params.y.float_output;
  e.has_residual = params.has_residual;
  e.residual_zero_point = params.residual.zero_point;
  e.residual_multiplier = params.residual_multiplier;
  return e;
}

}  // namespace octet::kernels
