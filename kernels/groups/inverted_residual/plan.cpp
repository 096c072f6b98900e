// SPDX-License-Identifier: Apache-2.0
// Which inverted residuals the kernels support, the layouts of plan.h, and the packing of weights and constants, one
// chunk of hidden channels after another, as InvertedChunk describes them.
#include <algorithm>
#include <climits>
#include <cstring>

#include "kernels/conv/conv2d.h"
#include "kernels/conv/cuda/family.h"
#include "kernels/groups/inverted_residual/plan.h"
#include "src/base/error.h"

namespace octet::kernels {
namespace {

void require(bool ok, const char* what) {
  if (!ok) throw promise_error(std::string("cuda inverted residual: ") + what);
}

/// Checks that the second convolution reads what the first writes.
void check_edge(const ConvNode& from, const ConvNode& to) {
  require(from.shape.out_c == to.shape.in_c && from.shape.out_h == to.shape.in_h && from.shape.out_w == to.shape.in_w,
          "a convolution's input is not the output of the one before it");
  require(from.params.y.is_signed == to.params.x.is_signed && from.params.y.zero_point == to.params.x.zero_point,
          "a convolution's zero point is not that of the one before it");
}

void check(const InvertedResidual& block) {
  check_conv2d(block.depthwise.shape, block.depthwise.params, block.depthwise.weights, "depthwise");
  check_conv2d(block.project.shape, block.project.params, block.project.weights, "narrowing");
  check_edge(block.depthwise, block.project);
  if (!block.has_expand) return;
  check_conv2d(block.expand.shape, block.expand.params, block.expand.weights, "expanding");
  check_edge(block.expand, block.depthwise);
}

bool is_pointwise(const Conv2dShape& g) {
  return g.kernel_h == 1 && g.kernel_w == 1 && g.stride_h == 1 && g.stride_w == 1 && g.pad_h == 0 && g.pad_w == 0 &&
         g.groups == 1;
}

bool is_depthwise(const Conv2dShape& g) {
  return g.groups == g.in_c && g.out_c == g.in_c && g.kernel_h == 3 && g.kernel_w == 3 && g.dilation_h == 1 &&
         g.dilation_w == 1 && g.stride_h == g.stride_w && g.stride_h <= 2;
}

/// Returns whether the codes of this convolution can be rounded in steps.
bool has_steps(const ConvNode& conv) {
  return !conv.params.y.float_output && !conv.params.has_residual &&
         can_scale_steps(conv.weights.multiplier, conv.weights.bias, conv.shape.out_c);
}

bool fits(const InvertedResidual& block, int images) {
  const Conv2dShape &in = block.first().shape, &d = block.depthwise.shape, &out = block.project.shape;
  return (!block.has_expand || (is_pointwise(block.expand.shape) && has_steps(block.expand))) && is_depthwise(d) &&
         has_steps(block.depthwise) && is_pointwise(out) && !block.project.params.y.float_output &&
         inverted_quads(out.out_c) > 0 && in.in_stride % 16 == 0 && out.out_stride % 16 == 0 &&
         (!block.project.params.has_residual || out.residual_stride % 16 == 0) &&
         static_cast<int64_t>(images) * in.in_h * in.in_w <= INT_MAX &&
         static_cast<int64_t>(images) * out.out_h * out.out_w <= INT_MAX;
}

}  // namespace

InvertedTiles::InvertedTiles(const CudaInvertedResidual& choice, const InvertedResidual& block, int images) {
  const Conv2dShape& d = block.depthwise.shape;
  height = choice.rows * choice.strips;
  halo_h = (height - 1) * d.stride_h + 3, halo_w = (choice.width - 1) * d.stride_w + 3;
  across = ceil_div(d.out_w, choice.width), down = ceil_div(d.out_h, height), groups = ceil_div(images, choice.images);
  positions = choice.images * choice.strips * choice.width;
  warps = ceil_div(positions, 16);
  chunks = ceil_div(d.out_c, kHiddenChunk);
}

InvertedShared::InvertedShared(const CudaInvertedResidual& choice, const InvertedResidual& block, int images) {
  const InvertedTiles tiles(choice, block, images);
  const InvertedChunk chunk(block);
  const Conv2dShape& in = block.first().shape;
  const int most = std::min(tiles.halo_h, in.in_h) * std::min(tiles.halo_w, in.in_w) * choice.images;
  const int halo = tiles.halo_h * tiles.halo_w;
  // The bytes behind a pixel's channels, which belong to the next pixel or to nothing, are multiplied by weights 0.
  x_pitch = chunk.k_steps > 0 ? (ceil_div(in.in_c, 16) | 1) * 16 : 0;
  x_swap = 0;
  if (choice.turns > 1) {
    if (chunk.k_steps > 0 && ceil_div(in.in_c, 16) == 2) x_pitch = 2 * 16, x_swap = 1;
    units = ceil_div(halo, 8), x_image = halo * x_pitch;
    x_buffer = 2 * x_image + 8 * x_pitch;  // the last eight pixels may be fewer
    x = tiles.chunks * chunk.bytes;
    hidden = ceil_div(x + 2 * x_buffer, 128) * 128;
    plane = ceil_div(halo * 16, 128) * 128 + 64;  // 64 for the reason given below
    positions = hidden + inverted_turn_buffers(block.has_expand) * 2 * choice.images * plane;
    bytes = gathered = positions + kPlaceBytes + tiles.warps * 32 * (2 / choice.images) * 4;
    return;
  }
  const int pixels = ceil_div(most, 16) * 16;
  units = x_image = x_buffer = 0;
  x = choice.groups * 2 * chunk.bytes;
  hidden = ceil_div(x + pixels * x_pitch + 16, 128) * 128;
  // 64 bytes more than a multiple of 128, so that what a warp writes to both planes at once is in different banks.
  plane = ceil_div(halo * choice.images * 16, 128) * 128 + 64;
  positions = hidden + choice.groups * 2 * plane;
  bytes = positions + pixels * 4;
  const int sums = tiles.warps * choice.rows * inverted_quads(block.project.shape.out_c);
  gathered = std::max(bytes, choice.groups * sums * kUnitBytes);
  bytes = gathered + (choice.parts > 1 ? ceil_div(sums, choice.parts) * choice.parts * kUnitBytes : 0);
}

std::string CudaInvertedResidual::name() const {
  std::string name =
      "inverted_residual_" + std::to_string(rows * strips) + "x" + std::to_string(width) + "_r" + std::to_string(rows);
  if (images > 1) name += "_i" + std::to_string(images);
  if (groups > 1) name += "_g" + std::to_string(groups);
  if (parts > 1) name += "_c" + std::to_string(parts);
  if (turns > 1) name += "_t" + std::to_string(turns);
  return name;
}

bool inverted_turns_fit(const CudaInvertedResidual& choice, const InvertedResidual& block, int images,
                        int shared_limit) {
  const InvertedTiles tiles(choice, block, images);
  const InvertedShared shared(choice, block, images);
  return inverted_takes_turns(choice.rows, block.project.shape.out_c) && tiles.warps <= kMaxWarps &&
         choice.images == inverted_turn_images(block.has_expand) &&
         block.project.shape.out_h * static_cast<int64_t>(block.project.shape.out_w) < 1 << 28 &&
         shared.units <= tiles.warps * kTurnUnits && shared.bytes <= shared_limit;
}

bool cuda_runs_inverted_residual(const InvertedResidual& block, int images, const CudaGpu& gpu) {
  check(block);
  require(images > 0, "empty tensor");
  return gpu.capability >= 80 && fits(block, images);
}

namespace {

/// Writes fragments of two blocks of 8 columns and 32 rows, given by weight(block, row k, column), 16 bytes per lane.
template <class Weight>
void pack_fragments(uint8_t* to, const Weight& weight) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int byte = 0; byte < 16; ++byte) {
      const int half = byte / 4 % 2, k = half * 16 + lane % 4 * 4 + byte % 4;
      to[lane * 16 + byte] = static_cast<uint8_t>(weight(byte / 8, k, lane / 4));
    }
  }
}

/// Returns the parameters of a convolution whose input is held codes.
Conv2dParams held_params(Conv2dParams params, int shift) {
  params.x = {params.x.zero_point + shift, false};
  return params;
}

/// The multiplier, bias and start value of each hidden channel, padded with zeros.
class HiddenConstants {
 public:
  HiddenConstants(const ConvNode& conv, int shift, int channels)
      : channels_(channels),
        packed_(cuda_pack_constants(conv.shape, held_params(conv.params, shift), conv.weights, channels, 0)) {
    scale_constants(packed_.data(), channels, conv.shape.out_c);
  }
  /// Copies the constants of a channel to index `at` of arrays of `stride` constants; the start value is stored twice.
  void copy(int channel, uint8_t* to, int at, int stride) const {
    const int places[] = {at, stride + at, stride * 2 + at / 2 * 4 + at % 2, stride * 2 + at / 2 * 4 + at % 2 + 2};
    for (int i = 0; i < 4; ++i) {
      std::memcpy(to + places[i] * 4, packed_.data() + (static_cast<size_t>(std::min(i, 2)) * channels_ + channel) * 4,
                  4);
    }
  }

 private:
  int channels_;
  std::vector<uint8_t> packed_;
};

/// Packs the weights of a chunk; channels behind the last have weights 0.
class ChunkPacker {
 public:
  ChunkPacker(const InvertedResidual& block, int first) : block_(block), layout_(block), first_(first) {}

  void expand(uint8_t* to) const {
    const Conv2dShape& g = block_.expand.shape;
    for (int part = 0; part < layout_.k_steps * 2; ++part) {
      pack_fragments(to + part * 512, [&](int of_pair, int k, int column) {
        const int channel = first_ + expanded_byte(part % 2 * 2 + of_pair, column), in = part / 2 * 32 + k;
        return channel < g.out_c && in < g.in_c ? block_.expand.weights.weight[channel * g.in_c + in] : 0;
      });
    }
  }
  void depthwise(uint8_t* to) const {
    for (int part = 0; part < 6; ++part) {
      pack_fragments(to + part * 512, [&](int pair, int k, int column) {
        const int channel = first_ + hidden_byte(part / 3, pair, column), tap = k / 8;
        if (tap > 2 || k % 8 != column || channel >= block_.depthwise.shape.out_c) return 0;
        return static_cast<int>(block_.depthwise.weights.weight[channel * 9 + part % 3 * 3 + tap]);
      });
    }
  }
  void project(uint8_t* to) const {
    const Conv2dShape& g = block_.project.shape;
    for (int part = 0; part < inverted_quads(g.out_c) * 2; ++part) {
      pack_fragments(to + part * 512, [&](int of_pair, int k, int column) {
        const int out = output_channel(part * 2 + of_pair, column), in = first_ + narrowed_byte(k);
        return out < g.out_c && in < g.in_c ? block_.project.weights.weight[static_cast<ptrdiff_t>(out) * g.in_c + in]
                                            : 0;
      });
    }
  }

 private:
  const InvertedResidual& block_;
  InvertedChunk layout_;
  int first_;
};

}  // namespace

std::vector<uint8_t> cuda_inverted_residual_pack(const InvertedResidual& block) {
  const InvertedChunk layout(block);
  const int chunks = ceil_div(block.depthwise.shape.out_c, kHiddenChunk);
  const int hidden = chunks * kHiddenChunk, out = inverted_quads(block.project.shape.out_c) * 32;
  std::vector<uint8_t> packed =
      cuda_pack_constants(block.project.shape, held_params(block.project.params, held_shift(block.depthwise.params.y)),
                          block.project.weights, out, static_cast<size_t>(chunks) * layout.bytes);
  const HiddenConstants depthwise(block.depthwise, windows_shift(block), hidden);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    uint8_t* to = packed.data() + cuda_constants_bytes(out) + static_cast<size_t>(chunk) * layout.bytes;
    const ChunkPacker weights(block, chunk * kHiddenChunk);
    if (block.has_expand) {
      weights.expand(to);
      const HiddenConstants expand(block.expand, held_shift(block.expand.params.x), hidden);
      for (int i = 0; i < kHiddenChunk; ++i) {
        expand.copy(chunk * kHiddenChunk + i, to + layout.expand_constants, i, kHiddenChunk);
      }
    }
    weights.depthwise(to + layout.depthwise);
    weights.project(to + layout.project);
    for (int i = 0; i < kHiddenChunk; ++i) {
      const int plane = i / 16, byte = hidden_byte(plane, i % 4 / 2, i % 16 / 4 * 2 + i % 2);
      depthwise.copy(chunk * kHiddenChunk + byte, to + layout.depthwise_constants + plane * hidden_constants_bytes(16),
                     i % 16, 16);
    }
  }
  return packed;
}

}  // namespace octet::kernels
