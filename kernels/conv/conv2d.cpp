// SPDX-License-Identifier: Apache-2.0
// The definition of an int8 convolution, whose bytes every engine and kernel reproduces. It is written to be read; the
// only concession to speed is that a window is first widened to int16, so that the compiler vectorizes the dot
// products.
#include "kernels/conv/conv2d.h"

#include <string>
#include <vector>

#include "src/base/error.h"

namespace octet::kernels {
namespace {

int32_t load_code(const void* codes, ptrdiff_t i, bool is_signed) {
  return is_signed ? static_cast<const int8_t*>(codes)[i] : static_cast<const uint8_t*>(codes)[i];
}

/// Sets window[r][s][c] = xq - zx for the channels of one group under one output pixel, and 0 outside the image.
void gather_window(const Conv2dShape& g, const Conv2dParams& p, const void* x, int oy, int ox, int first_c,
                   int16_t* window) {
  const int channels = g.in_c / g.groups;
  for (int r = 0; r < g.kernel_h; ++r) {
    const int iy = oy * g.stride_h - g.pad_h + r * g.dilation_h;
    for (int s = 0; s < g.kernel_w; ++s, window += channels) {
      const int ix = ox * g.stride_w - g.pad_w + s * g.dilation_w;
      const bool inside = iy >= 0 && iy < g.in_h && ix >= 0 && ix < g.in_w;
      const ptrdiff_t pixel = (static_cast<ptrdiff_t>(iy) * g.in_w + ix) * g.in_stride + first_c;
      for (int c = 0; c < channels; ++c) {
        window[c] = inside ? static_cast<int16_t>(load_code(x, pixel + c, p.x.is_signed) - p.x.zero_point) : int16_t{0};
      }
    }
  }
}

int32_t dot(const int16_t* a, const int16_t* b, int n) {
  int32_t sum = 0;
  for (int i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

void conv2d_int8_reference(const Conv2dShape& g, const Conv2dParams& p, const Conv2dWeights& w, const void* x,
                           const void* residual, void* y) {
  const int taps = g.kernel_h * g.kernel_w * (g.in_c / g.groups);
  const int group_k = g.out_c / g.groups;
  const std::vector<int16_t> weight(w.weight, w.weight + static_cast<ptrdiff_t>(g.out_c) * taps);
  std::vector<int16_t> window(taps);

  for (int oy = 0; oy < g.out_h; ++oy) {
    for (int ox = 0; ox < g.out_w; ++ox) {
      const ptrdiff_t pixel = static_cast<ptrdiff_t>(oy) * g.out_w + ox;
      for (int k = 0; k < g.out_c; ++k) {
        const int group = k / group_k;
        if (k % group_k == 0) gather_window(g, p, x, oy, ox, group * (g.in_c / g.groups), window.data());
        const int32_t acc = dot(window.data(), weight.data() + static_cast<ptrdiff_t>(k) * taps, taps);

        float t = rescale(acc, w.multiplier[k], w.bias[k]);
        if (p.has_residual) {
          const int32_t r = load_code(residual, pixel * g.residual_stride + k, p.residual.is_signed);
          t = fmaf(static_cast<float>(r - p.residual.zero_point), p.residual_multiplier, t);
        }
        store_result(t, p.y, y, pixel * g.out_stride + k);
      }
    }
  }
}

void require_conv2d(bool ok, const char* who, const char* what) {
  if (!ok) throw promise_error(std::string(who) + " convolution: " + what);
}

void check_conv2d(const Conv2dShape& g, const Conv2dParams& p, const Conv2dWeights& w, const char* who) {
  const auto require = [&](bool ok, const char* what) { require_conv2d(ok, who, what); };
  require(g.in_c > 0 && g.in_h > 0 && g.in_w > 0 && g.out_c > 0 && g.out_h > 0 && g.out_w > 0, "empty tensor");
  require(g.kernel_h > 0 && g.kernel_w > 0 && g.stride_h > 0 && g.stride_w > 0 && g.pad_h >= 0 && g.pad_w >= 0 &&
              g.dilation_h > 0 && g.dilation_w > 0,
          "window out of range");
  require(g.groups > 0 && g.in_c % g.groups == 0 && g.out_c % g.groups == 0, "channels not divisible by groups");
  require(pad_bottom(g) > -g.stride_h && pad_right(g) > -g.stride_w, "windows do not reach the image's end");
  require(g.in_stride >= g.in_c && g.out_stride >= g.out_c, "pixel stride below channels");
  require(!p.has_residual || g.residual_stride >= g.out_c, "residual's pixel stride below channels");
  require(w.weight != nullptr && w.multiplier != nullptr && w.bias != nullptr, "parameters missing");
}

}  // namespace octet::kernels
