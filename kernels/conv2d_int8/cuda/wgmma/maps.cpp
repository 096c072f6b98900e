#include "kernels/conv2d_int8/cuda/wgmma/maps.h"

#include <cuda_runtime.h>

#include <string>

#include "kernels/launch_refused.h"

namespace octet::kernels {
namespace {

/// A function of the driver, which programs are not linked with: octet also runs where there is none.
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

/// A matrix of bytes, `stride` bytes from row to row, in boxes.
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

}  // namespace

CUtensorMap dense_map(const Conv2dShape& g, const void* x, int images, int channels, int pixels) {
  return matrix_map(x, static_cast<cuuint64_t>(images) * g.in_h * g.in_w, g.in_c, g.in_stride, pixels, channels,
                    swizzle(channels));
}

CUtensorMap rows_map(const void* codes, int pixels, int out_c, int stride, int rows) {
  return matrix_map(codes, pixels, (out_c + 15) / 16 * 16, stride, rows,
                    /*box_columns=*/64, swizzle(64));
}

CUtensorMap window_map(const Conv2dShape& g, const void* x, int images, int channels, int pixels) {
  static const auto encode = driver_function<decltype(cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  const auto wide = [](int n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t sizes[] = {wide(g.in_c), wide(g.in_w), wide(g.in_h), wide(images)};
  const cuuint64_t strides[] = {wide(g.in_stride), wide(g.in_w) * g.in_stride, wide(g.in_h) * g.in_w * g.in_stride};
  // The first tap of a window moves from one corner to the other, the latter seen from the last pixel.
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

CUtensorMap padded_map(const Conv2dShape& g, const void* x, int images, int channels, int pixels) {
  Conv2dShape windows = g;  // that begin everywhere from the padding to the last pixel
  windows.kernel_h = g.pad_h + 1, windows.kernel_w = g.pad_w + 1;
  windows.stride_h = windows.stride_w = windows.dilation_h = windows.dilation_w = 1;
  return window_map(windows, x, images, channels, pixels);
}

}  // namespace octet::kernels
