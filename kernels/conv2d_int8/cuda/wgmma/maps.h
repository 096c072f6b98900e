// Tensor maps: how the tensor memory accelerator finds a convolution's input. They are plain data that a launch passes
// to its kernel.
#pragma once

#include <cuda.h>

#include "kernels/conv2d_int8/conv2d_int8.h"

namespace octet::kernels {

/// x as a matrix [images * H * W, in_c], read in boxes of `pixels` x `channels` bytes, swizzled for rows of `channels`
/// (64 or 128). Bytes outside are 0.
CUtensorMap dense_map(const Conv2dShape& shape, const void* x, int images, int channels, int pixels);

/// Codes as a matrix [pixels, out_c, filled up to whole 16 bytes], read or written in boxes of `rows` x 64 bytes,
/// swizzled for that.
CUtensorMap rows_map(const void* codes, int pixels, int out_c, int stride, int rows);

/// x as the windows of a convolution: `pixels` windows one after another, `channels` bytes of one tap of each.
CUtensorMap window_map(const Conv2dShape& shape, const void* x, int images, int channels, int pixels);

/// x as images padded with zeros on the left and on top, all their pixels one after another, `pixels` at a time.
CUtensorMap padded_map(const Conv2dShape& shape, const void* x, int images, int channels, int pixels);

}  // namespace octet::kernels
