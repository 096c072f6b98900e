// Weights and constants of an inverted residual, chunk after chunk of hidden channels, as threads read them.
#include <algorithm>
#include <cstring>

#include "kernels/conv2d_int8/cuda/family.h"
#include "kernels/inverted_residual_int8/cuda/code_steps.h"
#include "kernels/inverted_residual_int8/cuda/plan.h"

namespace octet::kernels {
namespace {

/// Writes fragments of two blocks of 8 columns: weight(block, row k, column) of 32 rows, 16 bytes a lane.
template <class Weight>
void pack_fragments(uint8_t* to, const Weight& weight) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int byte = 0; byte < 16; ++byte) {
      const int half = byte / 4 % 2, k = half * 16 + lane % 4 * 4 + byte % 4;
      to[lane * 16 + byte] = static_cast<uint8_t>(weight(byte / 8, k, lane / 4));
    }
  }
}

/// A convolution as the kernel sees it: its input's codes are held codes.
Conv2dParams held_params(Conv2dParams params, int shift) {
  params.x = {params.x.zero_point + shift, false};
  return params;
}

/// multiplier, bias and the start of a sum of each hidden channel, 0 behind the last.
class HiddenConstants {
 public:
  HiddenConstants(const ConvNode& conv, int shift, int channels)
      : channels_(channels),
        packed_(cuda_pack_constants(conv.shape, held_params(conv.params, shift), conv.weights, channels, 0)) {
    float* constants = reinterpret_cast<float*>(packed_.data());
    for (int k = 0; k < conv.shape.out_c; ++k) {
      constants[k] *= kStepScale;
      constants[channels + k] = scaled_bias(constants[channels + k]);
    }
  }
  /// To index `at` of arrays of `stride` constants; the start of a sum is there twice.
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

/// A chunk's weights: of channels behind the last, 0.
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
