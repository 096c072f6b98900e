// Geometry of windows and copies, shared by the float and the int8 graph.
#pragma once

#include <string>

#include "src/graph/graph.h"

namespace octet {

/// "[16, 32, 32]".
std::string to_string(const Shape& shape);

/// "" if every dimension is in 1..kMaxDimension and the elements are at most kMaxElements, else what is wrong.
std::string shape_fault(const Shape& shape);

/// "" if the window fits an image of in.h x in.w pixels, else what is wrong. `op`: windows of
/// avg_pool and max_pool have no dilation and at most half a kernel of padding (a max_pool's behind the image may be
/// larger), and every one holds at least one pixel of the image.
std::string window_fault(const Window& window, const Shape& in, Op op);

/// Height and width of the output; c is left 0. Only for windows without fault.
Shape window_output(const Window& window, const Shape& in);

/// "" if an image of in.c channels has `channels` of them from `first` on, else what is wrong.
std::string slice_fault(int first, int channels, const Shape& in);

/// "" if an image can be made so many times as high and wide, else what is wrong.
std::string resize_fault(int factor_h, int factor_w, const Shape& in);

/// "" if an image can be made so many times as high and wide with sums that float32 holds exactly
/// (kernels/bilinear_int8), else what is wrong.
std::string bilinear_fault(int factor_h, int factor_w, const Shape& in);

/// "" if an image's channels make that many groups of one size, else what is wrong.
std::string shuffle_fault(int groups, const Shape& in);

/// Terms of a sum in a matmul: 255 * 255 times as many stay below 2^31.
inline constexpr int kMostMatmulTerms = 33025;

/// "" if `groups` matrices of a, [pixels, channels of a group], can be multiplied by b's, with sums of codes that int32
/// holds, else what is wrong.
std::string matmul_fault(int groups, bool transposed, const Shape& a, const Shape& b);

/// Channels of a group in a softmax: kExponentialOne times as many stay below 2^31.
inline constexpr int kMostSoftmaxChannels = 65535;

/// "" if an image's channels make groups of one size that a softmax can add up, else what is wrong.
std::string softmax_fault(int groups, const Shape& in);

/// "" if a pixel's channels make factor_h x factor_w pixels, else what is wrong.
std::string depth_to_space_fault(int factor_h, int factor_w, const Shape& in);

/// Every stride-th pixel, from the first: subsample_pad. c is left 0.
Shape subsample_output(const Window& window, const Shape& in);

}  // namespace octet
