// SPDX-License-Identifier: Apache-2.0
// The path for processors without AVX2: any shape, in plain C++.
//
// A task is one output row. For each pixel and group the window's codes are gathered as int16 differences (xq - zx),
// which are 0 in the padding, and multiplied by weights that were widened to int16 when packed. Compilers turn this
// inner product into the multiply-add of 16-bit pairs that every SIMD set has (SSE2 pmaddwd, NEON smlal). Four output
// channels share each load of the window.
#include <string>
#include <vector>

#include "kernels/conv/cpu/paths.h"

namespace octet::kernels {
namespace {

class PortableConv2d final : public CpuConv2d {
 public:
  PortableConv2d(const Conv2dShape& shape, const Conv2dParams& params, const Conv2dWeights& weights)
      : g_(shape),
        p_(params),
        taps_(shape.kernel_h * shape.kernel_w * (shape.in_c / shape.groups)),
        weight_(weights.weight, weights.weight + static_cast<ptrdiff_t>(shape.out_c) * taps_),
        multiplier_(weights.multiplier, weights.multiplier + shape.out_c),
        bias_(weights.bias, weights.bias + shape.out_c) {}

  std::string name() const override { return conv_name(g_, {"_portable"}); }
  size_t packed_bytes() const override {
    return weight_.size() * sizeof(int16_t) + (multiplier_.size() + bias_.size()) * sizeof(float);
  }
  size_t workspace_bytes() const override { return taps_ * sizeof(int16_t); }
  int tasks(int images) const override { return images * g_.out_h; }

  void run(const CpuConv2dBatch& batch, int begin, int end, void* workspace) const override {
    for (int task = begin; task < end; ++task) run_row(batch, task, static_cast<int16_t*>(workspace));
  }

 private:
  void run_row(const CpuConv2dBatch& batch, int row, int16_t* window) const {
    const int image = row / g_.out_h, oy = row % g_.out_h;
    const int group_k = g_.out_c / g_.groups;
    const uint8_t* x = batch.x + static_cast<ptrdiff_t>(image) * g_.in_h * g_.in_w * g_.in_stride;
    for (int ox = 0; ox < g_.out_w; ++ox) {
      const ptrdiff_t pixel = static_cast<ptrdiff_t>(row) * g_.out_w + ox;
      for (int group = 0; group < g_.groups; ++group) {
        gather(x, oy, ox, group, window);
        int k = group * group_k;
        const int last = k + group_k;
        for (; k + 4 <= last; k += 4) channels<4>(batch, pixel, k, window);
        for (; k < last; ++k) channels<1>(batch, pixel, k, window);
      }
    }
    if (batch.lookup == nullptr) return;
    uint8_t* y = static_cast<uint8_t*>(batch.y) + static_cast<ptrdiff_t>(row) * g_.out_w * g_.out_stride;
    look_up_rows(CpuIsa::portable, *batch.lookup, y, g_.out_w, g_.out_stride, g_.out_c);
  }

  void gather(const uint8_t* x, int oy, int ox, int group, int16_t* window) const {
    const int channels = g_.in_c / g_.groups;
    for (int r = 0; r < g_.kernel_h; ++r) {
      const int iy = oy * g_.stride_h - g_.pad_h + r * g_.dilation_h;
      for (int s = 0; s < g_.kernel_w; ++s, window += channels) {
        const int ix = ox * g_.stride_w - g_.pad_w + s * g_.dilation_w;
        if (iy < 0 || iy >= g_.in_h || ix < 0 || ix >= g_.in_w) {
          for (int c = 0; c < channels; ++c) window[c] = 0;
          continue;
        }
        const uint8_t* from = x + (static_cast<ptrdiff_t>(iy) * g_.in_w + ix) * g_.in_stride + group * channels;
        for (int c = 0; c < channels; ++c) window[c] = static_cast<int16_t>(from[c] - p_.x.zero_point);
      }
    }
  }

  template <int kChannels>
  void channels(const CpuConv2dBatch& batch, ptrdiff_t pixel, int k, const int16_t* window) const {
    const int16_t* w = weight_.data() + static_cast<ptrdiff_t>(k) * taps_;
    int32_t acc[kChannels] = {};
    for (int i = 0; i < taps_; ++i) {
      for (int j = 0; j < kChannels; ++j) acc[j] += window[i] * w[static_cast<ptrdiff_t>(j) * taps_ + i];
    }
    for (int j = 0; j < kChannels; ++j) store(batch, pixel, k + j, acc[j]);
  }

  void store(const CpuConv2dBatch& batch, ptrdiff_t pixel, int k, int32_t acc) const {
    float t = rescale(acc, multiplier_[k], bias_[k]);
    if (p_.has_residual) {
      const int32_t code = batch.residual[pixel * g_.residual_stride + k];
      t = fmaf(static_cast<float>(code - p_.residual.zero_point), p_.residual_multiplier, t);
    }
    store_result(t, p_.y, batch.y, pixel * g_.out_stride + k);
  }

  Conv2dShape g_;
  Conv2dParams p_;
  int taps_;
  std::vector<int16_t> weight_;
  std::vector<float> multiplier_, bias_;
};

}  // namespace

std::unique_ptr<CpuConv2d> make_portable_conv2d(const Conv2dShape& shape, const Conv2dParams& params,
                                                const Conv2dWeights& weights) {
  return std::make_unique<PortableConv2d>(shape, params, weights);
}

}  // namespace octet::kernels
