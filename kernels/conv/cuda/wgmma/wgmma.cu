// SPDX-License-Identifier: Apache-2.0
// Launches the kernels of the wgmma family, which are compiled for compute capability 9.0 only. A launch passes plain
// data, which includes tensor maps: these tell the tensor memory accelerator where to find input, residual and output.
#include "kernels/conv/cuda/wgmma/wgmma.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <mutex>
#include <string>
#include <utility>

#include "kernels/conv/conv2d.h"
#include "kernels/conv/cuda/wgmma/args.cuh"
#include "kernels/core/cuda.h"

namespace octet::kernels {

namespace {

/// Returns a function of the driver. Programs are not linked with the driver, because octet also runs without one.
template <class Function>
Function* driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  constexpr unsigned kSince = 12000;  // CUDA version
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &function, kSince, cudaEnableDefault, &found);
  if (status != cudaSuccess || found != cudaDriverEntryPointSuccess || function == nullptr) {
    throw LaunchRefused(std::string("the NVIDIA driver has no ") + name);
  }
  return reinterpret_cast<Function*>(function);
}

void check_map(CUresult status, const char* what) {
  if (status != CUDA_SUCCESS) {
    throw LaunchRefused(std::string("no tensor map of ") + what + ": CUDA driver error " + std::to_string(status));
  }
}

CUtensorMapSwizzle swizzle(int channels) {
  return channels == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
}

/// Returns the map of a matrix of bytes, with `stride` bytes from row to row, that is accessed in boxes.
CUtensorMap matrix_map(const void* data, cuuint64_t rows, int columns, int stride, int box_rows, int box_columns,
                       CUtensorMapSwizzle swizzle) {
  static const auto encode = driver_function<decltype(cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), rows};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(stride)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  CUtensorMap map;
  check_map(encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(data), sizes, strides, box, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
            "pixels");
  return map;
}

/// Maps x as a matrix [images * H * W, in_c], read in boxes of `pixels` x `channels` bytes, swizzled for rows of
/// `channels` (64 or 128). Bytes outside are 0.
CUtensorMap dense_map(const Conv2dShape& g, const void* x, int images, int channels, int pixels) {
  return matrix_map(x, static_cast<cuuint64_t>(images) * g.in_h * g.in_w, g.in_c, g.in_stride, pixels, channels,
                    swizzle(channels));
}

/// Maps codes as a matrix [pixels, out_c rounded up to 16], read or written in boxes of `rows` x 64 bytes, swizzled for
/// rows of 64 bytes.
CUtensorMap rows_map(const void* codes, int pixels, int out_c, int stride, int rows) {
  return matrix_map(codes, pixels, (out_c + 15) / 16 * 16, stride, rows, /*box_columns=*/64, swizzle(64));
}

/// Maps x as the windows of a convolution: `pixels` consecutive windows, `channels` bytes of one tap of each.
CUtensorMap window_map(const Conv2dShape& g, const void* x, int images, int channels, int pixels) {
  static const auto encode = driver_function<decltype(cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  const auto wide = [](int n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t sizes[] = {wide(g.in_c), wide(g.in_w), wide(g.in_h), wide(images)};
  const cuuint64_t strides[] = {wide(g.in_stride), wide(g.in_w) * g.in_stride, wide(g.in_h) * g.in_w * g.in_stride};
  // The first tap of a window moves from the lower corner to the upper one, which is relative to the last pixel.
  const int lower[] = {-g.pad_w, -g.pad_h};
  const int upper[] = {g.pad_w - (g.kernel_w - 1) * g.dilation_w, g.pad_h - (g.kernel_h - 1) * g.dilation_h};
  const cuuint32_t steps[] = {1, static_cast<cuuint32_t>(g.stride_w), static_cast<cuuint32_t>(g.stride_h), 1};
  CUtensorMap map;
  check_map(
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, const_cast<void*>(x), sizes, strides, lower, upper,
             static_cast<cuuint32_t>(channels), static_cast<cuuint32_t>(pixels), steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             swizzle(channels), CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
      "windows");
  return map;
}

/// Maps x as images that are padded with zeros on the left and on top: `pixels` consecutive pixels of them.
CUtensorMap padded_map(const Conv2dShape& g, const void* x, int images, int channels, int pixels) {
  Conv2dShape windows = g;  // windows that begin at every pixel from the padding to the last pixel
  windows.kernel_h = g.pad_h + 1, windows.kernel_w = g.pad_w + 1;
  windows.stride_h = windows.stride_w = windows.dilation_h = windows.dilation_w = 1;
  return window_map(windows, x, images, channels, pixels);
}

WgmmaOutput output(const WgmmaPacked& at, const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data,
                   const uint8_t* channel_tables) {
  const uint8_t* packed = static_cast<const uint8_t*>(data.packed);
  WgmmaOutput out{.constants = cuda_channel_constants(packed, at.channels),
                  .steps = StepRounding(p.y),
                  .rounding = PackedRounding(p.y),
                  .in_steps = StepRounding::can(p.y),
                  .lookup = CodeLookup(data),
                  .channel_tables = channel_tables,
                  .added = ResidualSteps(p.residual.zero_point, p.residual.is_signed, p.residual_multiplier),
                  .residual = p.has_residual ? static_cast<const uint8_t*>(data.residual) : nullptr,
                  .y = static_cast<uint8_t*>(data.y),
                  .pixels = data.images * g.out_h * g.out_w,
                  .out_c = g.out_c,
                  .out_stride = g.out_stride,
                  .residual_stride = g.residual_stride,
                  .by_image = FastDivide(g.out_h * g.out_w),
                  .by_row = FastDivide(g.out_w)};
  if (p.x.zero_point == 0) return out;
  out.starts.start = reinterpret_cast<const int32_t*>(packed + at.starts);
  out.starts.channels = at.channels;
  out.starts.column_classes = static_cast<int>(at.columns.taps.size());
  if (at.rows.taps.size() * at.columns.taps.size() > 1) {
    out.starts.row_class = packed + at.row_class;
    out.starts.column_class = packed + at.column_class;
  }
  return out;
}

CUtensorMap input_map(const WgmmaTile& tile, const Conv2dShape& g, const CudaConv2dData& data, int pixels) {
  const auto map = tile.shifted() ? padded_map : wgmma_is_dense(g) ? dense_map : window_map;
  return map(g, data.x, data.images, tile.block_k, pixels);
}

WgmmaArgs arguments(const WgmmaTile& tile, const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data,
                    const uint8_t* channel_tables) {
  const WgmmaPlan plan(tile, g, data.images, p.has_residual, channel_tables != nullptr);
  const WgmmaPacked at(tile, g);
  WgmmaArgs a{.x = input_map(tile, g, data, plan.x_rows),
              .end = output(at, g, p, data, channel_tables),
              .weight = static_cast<const uint8_t*>(data.packed) + at.weight,
              .g = g,
              .plan = plan,
              .images = data.images,
              .tiles = plan.tiles(),
              .dense = wgmma_is_dense(g),
              .by_n_tiles = FastDivide(plan.n_tiles),
              .by_stages = FastDivide(plan.stages)};
  if (tile.shifted()) {
    a.by_padded_image = FastDivide(plan.padded_h * plan.padded_w);
    a.by_padded_row = FastDivide(plan.padded_w);
    const int row = tile.block_k / 16;
    a.to_next_column = g.dilation_w * row;
    a.to_next_row = (g.dilation_h * plan.padded_w - (g.kernel_w - 1) * g.dilation_w) * row;
  } else {
    a.y = rows_map(data.y, a.end.pixels, g.out_c, g.out_stride, tile.group_m);
    if (p.has_residual) {
      a.residual = rows_map(data.residual, a.end.pixels, g.out_c, g.residual_stride, tile.group_m);
    }
  }
  return a;
}

template <int... kPart>
WgmmaLaunch find_launch(int tile, std::integer_sequence<int, kPart...>) {
  constexpr WgmmaLaunch (*kLaunches[])(int) = {wgmma_launch<kPart>...};
  return kLaunches[tile % kWgmmaPartCount](tile);
}

}  // namespace

void wgmma_channel_lookup(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p,
                          const CudaConv2dData& data, const uint8_t* tables, CudaStream stream) {
  const WgmmaArgs args = arguments(kWgmmaTiles[conv.variant], g, p, data, tables);
  // A launch first sets how much shared memory the kernel may have, which depends on the shape. Another thread must not
  // set it in between.
  static std::mutex one_at_a_time;
  const std::scoped_lock lock(one_at_a_time);
  find_launch(conv.variant, std::make_integer_sequence<int, kWgmmaPartCount>())(args, p.x.is_signed, stream);
}

namespace {

void launch(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data,
            CudaStream stream) {
  wgmma_channel_lookup(conv, g, p, data, nullptr, stream);
}

}  // namespace

const CudaConvFamily& cuda_wgmma_family() {
  static constexpr CudaConvFamily family{wgmma_choices, wgmma_pack, nullptr, launch};
  return family;
}

}  // namespace octet::kernels
