// SPDX-License-Identifier: Apache-2.0
// Operators that copy codes to other places: slice, channel_shuffle, depth_to_space, nearest resize and flatten, and
// the parameter-free shortcut. Codes stay as they are, so one version serves int8 and uint8.
#pragma once

#include <cstdint>

#include "kernels/core/codes.h"
#include "kernels/core/cuda.h"

namespace octet::kernels {

/// Picks some channels of each pixel (slice), permutes them (channel_shuffle), repeats pixels (nearest resize) or
/// spreads the channels of a pixel over several (depth_to_space).
struct PickShape {
  int in_w = 0, in_stride = 0;          ///< width of x, bytes between neighbouring pixels
  int first_channel = 0, channels = 0;  ///< the channels of x that y has
  int out_h = 0, out_w = 0, out_stride = 0;
  int factor_h = 1, factor_w = 1;  ///< how many times y has each row and column of x
  int part = 0;    ///< channels from one of the factor_h * factor_w copies to the next; 0: all are equal
  int groups = 1;  ///< of channels; y takes one channel of each in turn
};

/// Writes the given rows of one image: y[row, column, c] = x[row / factor_h, column / factor_w, first + c] with
///   first = first_channel + part * (row % factor_h * factor_w + column % factor_w);
/// with several groups, c % groups * (channels / groups) + c / groups stands in place of the c on the right.
void pick_int8(const PickShape& shape, Range rows, const uint8_t* x, uint8_t* y);

/// The tensors of a batch on the device: x [images, in_h, in_w, in_stride], y [images, out_h, out_w, out_stride], of
/// which the first `channels` (of a shortcut out_c) values of each pixel are written.
struct CudaCopyData {
  int images = 1;
  long x_image_stride = 0;  ///< bytes of one image of x, whose height the shape does not have
  const uint8_t* x = nullptr;
  uint8_t* y = nullptr;
};

/// pick_int8() on the GPU, for a batch. Throws Error(promise) when the launch fails.
void cuda_pick_int8(const PickShape& shape, const CudaCopyData& data, CudaStream stream);

/// The parameter-free shortcut (option A of He et al., "Deep Residual Learning", 2015): every stride-th pixel, with new
/// channels of real 0 on both sides of the copied ones.
struct SubsamplePadShape {
  int in_c = 0, in_w = 0, in_stride = 0;  ///< channels and width of x, bytes between neighbouring pixels
  int out_c = 0, out_h = 0, out_w = 0, out_stride = 0;
  int stride_h = 1, stride_w = 1;
};

struct SubsamplePadParams {
  uint8_t zero_code = 0;  ///< the stored byte of real 0
};

/// Writes one image. floor((out_c - in_c) / 2) of the new channels precede the copied ones.
void subsample_pad_int8(const SubsamplePadShape& shape, const SubsamplePadParams& params, const uint8_t* x, uint8_t* y);

/// subsample_pad_int8() on the GPU, for a batch. Throws Error(promise) when the launch fails.
void cuda_subsample_pad_int8(const SubsamplePadShape& shape, const SubsamplePadParams& params, const CudaCopyData& data,
                             CudaStream stream);

/// A copy between layouts. Strides are in bytes. A flatten of [H, W, C], which closes the gaps between pixels, has
/// pixels = H * W, y_stride = C and y_image_stride = the stride of H * W * C channels.
struct CopyCodesShape {
  int images = 1, pixels = 0, channels = 0;
  int x_stride = 0, y_stride = 0;               ///< between neighbouring pixels
  long x_image_stride = 0, y_image_stride = 0;  ///< between neighbouring images
};

/// Copies y[image][pixel][c] = x[image][pixel][c] on the GPU; bytes in gaps keep their values. Throws Error(promise)
/// when the launch fails.
void cuda_copy_codes(const CopyCodesShape& shape, const void* x, void* y, CudaStream stream);

}  // namespace octet::kernels
