// SPDX-License-Identifier: Apache-2.0
// The graph's operators that LibTorch has not, or not as needed. Tensors are [N, C, H, W]; what copies and sums serves
// values and, in the QAT graph, codes alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#if OCTET_CUDA
#include "kernels/training/batch_norm.h"
#include "kernels/training/excite.h"
#endif
#include "src/net/graph.h"

namespace octet {

/// Returns f(x).
at::Tensor applied(const Function& function, const at::Tensor& x);

/// Returns the convolution of x with weight [K, C / groups, R, S] of x's type and bias [K] (or undefined). Padding may
/// differ from side to side.
at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const Window& window,
                    int groups);

/// Returns the maximum of each window. On a GPU, channels-last, by octet's kernels: LibTorch's keep x and 8 bytes for
/// each value they choose.
at::Tensor max_pool(const at::Tensor& x, const Window& window);

/// Returns the means over each image's pixels, [N, C, 1, 1]. On a GPU, by octet's kernels where is_image_channels(x):
/// the gradient of x is then one value for all pixels, expanded.
at::Tensor image_means(const at::Tensor& x);

#if OCTET_CUDA
/// Returns whether the kernels of excite.h take x [N, C, H, W], and its shape for them.
bool is_image_channels(const at::Tensor& x);
kernels::ImageChannels image_channels(const at::Tensor& x);

/// Returns x [N, C, H, W], channels-last, as kernels of BatchNorm see it, and the memory in which their blocks add up
/// two sums a channel, float [parts, 2, C].
kernels::BatchNormShare batch_norm_share(const at::Tensor& x);
at::Tensor batch_norm_parts(const at::Tensor& x);
#endif

/// An image, and the padding that is left to LibTorch's operator, which pads both sides alike.
struct PaddedImage {
  at::Tensor image;
  std::array<int64_t, 2> pad;  ///< [vertical, horizontal]
};

/// Returns x and its padding where both sides have the same; else x with `value` around it, and no padding.
PaddedImage padded(const at::Tensor& x, const Padding& pad, double value);

// Recomputation: an input that a convolution multiplies need not be kept for the backward pass.

/// Lets the backward pass of the convolution that gave y call `again` for the convolution's input, x, in place of
/// keeping it. Returns false, and does nothing, where y is no convolution's result in a walk with gradients, or where
/// the convolution multiplied something else than x, as with uneven padding.
bool make_input_again(const at::Tensor& y, const at::Tensor& x, std::function<at::Tensor()> again);

/// Returns, by node, whether make_input_again() may take it: one convolution alone reads it, as what it multiplies, and
/// does not first copy it into a frame of uneven padding.
std::vector<bool> can_be_made_again(const Graph& graph);

// Copies: slice, subsample_pad, resize, channel_shuffle and depth_to_space. Results are channels-last, but for a slice,
// and may share x's memory where nothing changes.

at::Tensor picked_channels(const at::Tensor& x, const Node& node);
/// Takes every stride-th pixel and puts channels of zeros around those of x, half of them before.
at::Tensor subsampled_padded(const at::Tensor& x, const Node& node);
/// Repeats each pixel factor_h x factor_w times. (LibTorch's nearest finds pixels by a float scale.)
at::Tensor repeated_pixels(const at::Tensor& x, const Node& node);
at::Tensor shuffled_channels(const at::Tensor& x, const Node& node);
at::Tensor channels_to_pixels(const at::Tensor& x, const Node& node);

// resize_bilinear by integer factors with half-pixel centres. Each output row is a weighted mean of two rows of the
// input; as slices and sums, so that the backward pass adds in the same order on every machine, and so that a row of
// weight 0 is not read (0 times infinity is NaN).

/// Returns the interpolated values.
at::Tensor interpolated_pixels(const at::Tensor& x, const Node& node);

/// Returns sums with integer weights, 4 * factor_h * factor_w times the mean: exact for codes without their zero point.
at::Tensor interpolated_sums(const at::Tensor& x, const Node& node);

/// Returns [C] of x's type: the slopes [groups] of a prelu, each for all channels of its group.
at::Tensor channel_slopes(const at::Tensor& x, const at::Tensor& slopes);

// Attention: matmul and softmax, where the groups of channels are the heads. Results are channels-last.

/// Returns a view [N, heads, H * W, C / heads] of x.
at::Tensor as_heads(const at::Tensor& x, int heads);

/// Returns x [N, heads, H * W, channels] as images [N, heads * channels, H, W].
at::Tensor from_heads(const at::Tensor& x, int64_t height, int64_t width);

/// Returns the matrix products of a matmul without its scale: of values or, exact in double, of codes without their
/// zero points.
at::Tensor head_sums(const at::Tensor& a, const at::Tensor& b, const Node& node);

}  // namespace octet
