// SPDX-License-Identifier: Apache-2.0
// The operands of the CPU's matrix product: packed weights, and rows of input codes gathered by im2row.
//
// Packing happens once, when a network is compiled. A gathered row costs a copy of R * S * C bytes, used once for every
// output channel. Neighbouring taps of a window row are usually adjacent in memory (no dilation, no padding lanes) and
// are then copied together.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/conv/cpu/paths.h"
#include "kernels/core/divide.h"

namespace octet::kernels {
namespace {

/// Returns the number of vectors in the block that holds a channel of a group.
int block_vectors(const PackedGemm& p, const GemmKernels& kernels, int channel) {
  const int first = channel / p.block_channels * p.block_channels;
  return std::min(p.block_channels, p.padded_channels - first) / kernels.lanes;
}

/// Returns where a channel of a group is computed: its block's first channel plus its slot.
int slot_of(const PackedGemm& p, const GemmKernels& kernels, int channel) {
  const int pair_channels = 2 * kernels.lanes;
  const int in_block = channel % p.block_channels, pair = in_block / pair_channels;
  if (2 * pair + 1 >= block_vectors(p, kernels, channel)) return channel;  // a single last vector
  int slot = 0;
  while (kernels.pair_order[slot] != in_block % pair_channels) ++slot;
  return channel - in_block % pair_channels + slot;
}

/// Where the weights of a slot lie among one group's packed weights: k_group of them at each step.
struct PackedRow {
  size_t first, step;
};

PackedRow packed_row(const PackedGemm& p, const GemmKernels& kernels, int slot) {
  const int block = slot / p.block_channels, in_block = slot % p.block_channels;
  const int width = block_vectors(p, kernels, slot) * kernels.lanes;
  const size_t block_start = static_cast<size_t>(block) * p.block_channels * p.k;
  return {block_start + static_cast<size_t>(in_block) * kernels.k_group, static_cast<size_t>(width) * kernels.k_group};
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
    const PackedRow row = packed_row(p, kernels, slot);
    int8_t* to = p.weight.data() + group * group_weights + row.first;
    const int32_t sum = std::accumulate(from, from + g.kernel_h * g.kernel_w * in_channels, 0);
    for (int tap = 0; tap < g.kernel_h * g.kernel_w; ++tap) {
      for (int c = 0; c < in_channels; c += kernels.k_group, to += row.step) {
        const int codes = std::min(kernels.k_group, in_channels - c);
        for (int i = 0; i < codes; ++i) to[i] = *from++;
      }
    }
    const size_t i = static_cast<size_t>(group) * p.padded_channels + slot;
    // Unsigned, because the product may overflow int32 where the whole accumulator does not; both wrap to the same
    // bits.
    p.init.data()[i] = static_cast<int32_t>(static_cast<uint32_t>(kernels.code_offset - params.x.zero_point) *
                                            static_cast<uint32_t>(sum));
    p.multiplier.data()[i] = weights.multiplier[channel];
    p.bias.data()[i] = weights.bias[channel];
  }
  return p;
}

Im2Row::Im2Row(const Conv2dShape& shape, int x_zero_point, int tap_bytes, const GemmKernels& kernels)
    : g_(shape),
      x_zero_point_(x_zero_point),
      tap_bytes_(tap_bytes),
      wide_(kernels.activation_bytes == 2),
      gather_run_(kernels.gather) {
  for (int oy = 0; oy < g_.out_h; ++oy) {
    rows_.push_back(inside(oy * g_.stride_h - g_.pad_h, g_.kernel_h, g_.dilation_h, g_.in_h));
  }
  for (int ox = 0; ox < g_.out_w; ++ox) {
    columns_.push_back(inside(ox * g_.stride_w - g_.pad_w, g_.kernel_w, g_.dilation_w, g_.in_w));
  }
  auto whole = [&](int ox) { return columns_[ox].last - columns_[ox].first == g_.kernel_w; };
  while (inner_first_ < g_.out_w && !whole(inner_first_)) ++inner_first_;
  inner_last_ = inner_first_;
  while (inner_last_ < g_.out_w && whole(inner_last_)) ++inner_last_;
}

Im2Row::Span Im2Row::inside(int position, int kernel, int dilation, int size) {
  Span span;
  while (span.first < kernel && position + span.first * dilation < 0) ++span.first;
  span.last = span.first;
  while (span.last < kernel && position + span.last * dilation < size) ++span.last;
  return span;
}

void Im2Row::gather(const uint8_t* x, int first_row, int rows, uint8_t* to, ptrdiff_t row_bytes) const {
  const ptrdiff_t image_bytes = static_cast<ptrdiff_t>(g_.in_h) * g_.in_w * g_.in_stride;
  const int per_image = g_.out_h * g_.out_w;
  const uint8_t* image = x + first_row / per_image * image_bytes;
  int oy = first_row % per_image / g_.out_w, ox = first_row % g_.out_w;
  for (int row = 0; row < rows;) {
    int pixels = 1;
    if (gather_run_ != nullptr && ox >= inner_first_ && ox < inner_last_) {
      pixels = std::min(rows - row, inner_last_ - ox);
      gather_inner(image, oy, ox, pixels, to, row_bytes);
    } else {
      gather_pixel(image, oy, ox, to);
    }
    row += pixels;
    to += pixels * row_bytes;
    ox += pixels;
    if (ox == g_.out_w) {
      ox = 0;
      if (++oy == g_.out_h) {
        oy = 0;
        image += image_bytes;
      }
    }
  }
}

void Im2Row::gather_inner(const uint8_t* image, int oy, int ox, int pixels, uint8_t* to, ptrdiff_t row_bytes) const {
  const Span rows = rows_[oy];
  const ptrdiff_t line = static_cast<ptrdiff_t>(g_.in_w) * g_.in_stride;
  const bool together = g_.dilation_w == 1 && g_.in_stride == tap_bytes_;
  GatherRun run;
  run.from = image + (oy * g_.stride_h - g_.pad_h + rows.first * g_.dilation_h) * line +
             static_cast<ptrdiff_t>(ox * g_.stride_w - g_.pad_w) * g_.in_stride;
  run.pixel_step = static_cast<ptrdiff_t>(g_.stride_w) * g_.in_stride;
  run.row_step = g_.dilation_h * line;
  run.segment_step = static_cast<ptrdiff_t>(g_.dilation_w) * g_.in_stride;
  run.rows = rows.last - rows.first;
  run.segments = together ? 1 : g_.kernel_w;
  run.segment_bytes = together ? g_.kernel_w * tap_bytes_ : tap_bytes_;
  run.to_step = row_bytes;
  if (run.rows == g_.kernel_h) {
    run.pixels = pixels;
    run.to = to;
    gather_run_(run);
    return;
  }
  run.pixels = 1;  // windows over the top or bottom border have padding before or after each pixel's rows
  for (int pixel = 0; pixel < pixels; ++pixel, to += row_bytes, run.from += run.pixel_step) {
    run.to = fill(to, rows.first * g_.kernel_w);
    gather_run_(run);
    fill(run.to + run.rows * g_.kernel_w * tap_bytes_, (g_.kernel_h - rows.last) * g_.kernel_w);
  }
}

void Im2Row::gather_pixel(const uint8_t* image, int oy, int ox, uint8_t* to) const {
  const Span rows = rows_[oy], columns = columns_[ox];
  const int iy = oy * g_.stride_h - g_.pad_h, ix = ox * g_.stride_w - g_.pad_w;
  const ptrdiff_t tap_step = static_cast<ptrdiff_t>(g_.dilation_w) * g_.in_stride;
  const ptrdiff_t row_step = static_cast<ptrdiff_t>(g_.dilation_h) * g_.in_w * g_.in_stride;
  const uint8_t* from = image + (static_cast<ptrdiff_t>(iy) * g_.in_w + ix) * g_.in_stride + rows.first * row_step +
                        columns.first * tap_step;
  const bool together = tap_step == tap_bytes_;
  to = fill(to, rows.first * g_.kernel_w);
  for (int r = rows.first; r < rows.last; ++r, from += row_step) {
    to = fill(to, columns.first);
    if (together) {
      to = copy(to, from, (columns.last - columns.first) * tap_bytes_);
    } else {
      for (int s = 0; s < columns.last - columns.first; ++s) to = copy(to, from + s * tap_step, tap_bytes_);
    }
    to = fill(to, g_.kernel_w - columns.last);
  }
  fill(to, (g_.kernel_h - rows.last) * g_.kernel_w);
}

uint8_t* Im2Row::fill(uint8_t* to, int taps) const {
  if (taps == 0) return to;
  const int codes = taps * tap_bytes_;
  if (!wide_) {
    std::memset(to, x_zero_point_, codes);
    return to + codes;
  }
  const int16_t code = static_cast<int16_t>(x_zero_point_);
  for (int i = 0; i < codes; ++i) std::memcpy(to + 2 * i, &code, 2);
  return to + 2 * codes;
}

uint8_t* Im2Row::copy(uint8_t* to, const uint8_t* from, int codes) const {
  if (!wide_) {
    for (int i = 0; i < codes; i += 16) std::memcpy(to + i, from + i, 16);
    return to + codes;
  }
  for (int i = 0; i < codes; i += 16) {
    int16_t codes16[16];
    for (int j = 0; j < 16; ++j) codes16[j] = from[i + j];
    std::memcpy(to + 2 * i, codes16, sizeof(codes16));
  }
  return to + 2 * codes;
}

}  // namespace octet::kernels
