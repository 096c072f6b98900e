#include <algorithm>
#include <climits>
#include <cmath>

#include "kernels/ceil_div.h"
#include "kernels/conv2d_int8/cuda/wgmma/step_rounding.h"
#include "kernels/conv2d_int8/cuda/wgmma/wgmma.h"
#include "kernels/conv2d_int8/padding.h"
#include "kernels/sparsity/two_of_four.h"

namespace octet::kernels {
namespace {

constexpr int kMaxPixels = 1024;  // of a copy by windows

/// What a tensor map can say of windows in one direction: corners of 8 bits, taps of 8 bits, strides up to 8.
bool mappable(int kernel, int stride, int pad, int dilation) {
  const int span = (kernel - 1) * dilation;
  return kernel <= BorderClasses::kMaxTaps && stride <= 8 && pad <= 128 && span <= 255 && pad - span <= 127 &&
         pad - span >= -128;
}

/// As many pixels of padding behind the image as before it, as tensor maps are written here.
bool pads_alike(int behind, int pad, int stride) { return behind <= pad && behind > pad - stride; }

bool few_classes(const BorderClasses& classes) { return classes.taps.size() <= BorderClasses::kMaxClasses; }

/// Windows that move by single steps, with padding no wider than what they reach.
bool can_shift(const Conv2dShape& g) {
  return g.kernel_h * g.kernel_w > 1 && g.stride_h == 1 && g.stride_w == 1 &&
         g.pad_h <= (g.kernel_h - 1) * g.dilation_h && g.pad_w <= (g.kernel_w - 1) * g.dilation_w;
}

}  // namespace

BorderClasses::BorderClasses(int in, int out, int kernel, int stride, int pad, int dilation) : of_output(out) {
  for (int o = 0; o < out; ++o) {
    uint32_t inside = 0;
    for (int r = 0; r < kernel; ++r) {
      const int i = o * stride - pad + r * dilation;
      if (i >= 0 && i < in) inside |= 1u << r;
    }
    const auto found = std::find(taps.begin(), taps.end(), inside);
    of_output[o] = static_cast<uint8_t>(found - taps.begin());
    if (found == taps.end()) taps.push_back(inside);
  }
}

WgmmaPlan::WgmmaPlan(const WgmmaTile& tile, const Conv2dShape& g, int images, bool residual)
    : taps(g.kernel_h * g.kernel_w) {
  n_tiles = ceil_div(g.out_c, tile.block_n);
  chunks = ceil_div(g.in_c, tile.block_k);
  int64_t rows = static_cast<int64_t>(images) * g.out_h * g.out_w, reach = 0;
  if (tile.shifted()) {
    padded_w = g.in_w + g.pad_w, padded_h = g.in_h + g.pad_h;
    rows = (static_cast<int64_t>(images - 1) * padded_h + g.out_h - 1) * padded_w + g.out_w;
    reach = static_cast<int64_t>(g.kernel_h - 1) * g.dilation_h * padded_w + (g.kernel_w - 1) * g.dilation_w;
  }
  const int64_t held = tile.streamed() ? 0 : static_cast<int64_t>(chunks) * taps * tile.step_bytes();
  if (rows > INT_MAX - tile.group_m || reach > kMaxPixels - tile.group_m || held > kWgmmaSharedBytes ||
      (held > 0 && chunks > kWgmmaMaxChunks)) {
    return;
  }
  m_tiles = ceil_div(static_cast<int>(rows), tile.group_m);
  x_rows = tile.group_m + static_cast<int>(reach);
  x_bytes = cuda_round_up(x_rows * tile.block_k, 1024);
  stage_bytes = x_bytes + (held == 0 ? tile.step_bytes() : 0);
  held_bytes = cuda_round_up(static_cast<int>(held), 1024);
  end_bytes = tile.end_bytes();
  const auto stages_beside = [&](int n) {
    return std::min((kWgmmaSharedBytes - held_bytes - n * end_bytes) / stage_bytes, kWgmmaMaxStages);
  };
  // Places for a tile of each group, and for the residual of its next one, unless that leaves too few stages.
  ends_log = tile.shifted() ? 0 : (tile.parts() > 1 ? 1 : 0) + (residual ? 1 : 0);
  while (ends_log > 0 && (stages_beside(tile.groups << ends_log) < 4 || tile.groups << ends_log > kWgmmaMaxEnds)) {
    --ends_log;
  }
  ends = tile.groups << ends_log;
  stages = stages_beside(ends);
}

bool wgmma_is_dense(const Conv2dShape& g) {
  return g.kernel_h == 1 && g.kernel_w == 1 && g.stride_h == 1 && g.stride_w == 1 && g.pad_h == 0 && g.pad_w == 0;
}

bool wgmma_supports(const Conv2dShape& g, const Conv2dParams& p, const Conv2dWeights& w, int images) {
  return g.groups == 1 && g.in_c > 4 && g.in_stride % 16 == 0 && !p.y.float_output && g.out_stride % 16 == 0 &&
         (!p.has_residual || (g.residual_stride % 16 == 0 && can_scale_steps(p.residual_multiplier))) &&
         can_scale_steps(w.multiplier, w.bias, g.out_c) &&
         static_cast<int64_t>(images) * g.out_h * g.out_w <= INT_MAX - kMaxPixels &&
         pads_alike(pad_bottom(g), g.pad_h, g.stride_h) && pads_alike(pad_right(g), g.pad_w, g.stride_w) &&
         mappable(g.kernel_h, g.stride_h, g.pad_h, g.dilation_h) &&
         mappable(g.kernel_w, g.stride_w, g.pad_w, g.dilation_w) &&
         few_classes(BorderClasses(g.in_h, g.out_h, g.kernel_h, g.stride_h, g.pad_h, g.dilation_h)) &&
         few_classes(BorderClasses(g.in_w, g.out_w, g.kernel_w, g.stride_w, g.pad_w, g.dilation_w));
}

bool wgmma_keeps_two_of_four(const Conv2dShape& g, const int8_t* weight) {
  return first_dense_group(weight, static_cast<int64_t>(g.out_c) * g.kernel_h * g.kernel_w, g.in_c) < 0;
}

bool wgmma_fits(const WgmmaTile& tile, const Conv2dShape& g, int images) {
  return (!tile.shifted() || can_shift(g)) && (!tile.sparse || (g.kernel_h == 3 && g.kernel_w == 3)) &&
         WgmmaPlan(tile, g, images, /*residual=*/false).stages >= 2;
}

}  // namespace octet::kernels
