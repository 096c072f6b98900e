// SPDX-License-Identifier: Apache-2.0
// int8 convolution on the GPU: alternatives that all give the reference's bytes (conv2d.h), from which the engine
// chooses by measurement.
//
// An alternative is a kernel with its tile shape. Weights are packed on the host once for that alternative. Launching
// it is then a function of plain data that allocates nothing and never synchronizes. No CUDA types here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "kernels/core/cuda.h"

namespace octet::kernels {

/// Returns the bytes between neighbouring pixels of a code tensor on the GPU: 4 for images (up to 4 channels), else a
/// multiple of 16 for 16-byte copies. Lanes between channels and stride may hold anything.
inline int cuda_channel_stride(int channels) { return channels <= 4 ? 4 : (channels + 15) / 16 * 16; }

/// Every tensor starts at a multiple of 256 bytes and may be read up to this many bytes past its end.
inline constexpr size_t kCudaReadSlack = 256;

/// One alternative for running a convolution.
struct CudaConv2d {
  int variant = 0;          ///< which kernel and tile; meaningful to its family only
  int split_k = 1;          ///< number of parts of the sum, each computed by its own thread block
  bool in_cluster = false;  ///< the parts' blocks are a cluster that adds up in shared memory, not in the workspace
  std::string name;         ///< name in LayerInfo: "mma_128x128x64_s3", "mma_64x64x64_s4_k4", "dp4a_8x4_w3", "direct"
};

/// The GPU that kernels are chosen for.
struct CudaGpu {
  int capability = 0;  ///< 90 for compute capability 9.0; 80 where the driver compiled the kernels from the PTX of 8.0
  int multiprocessors = 0;
};

/// Returns all alternatives for `images` images on a GPU, the likely fastest first. Never empty, because "direct" runs
/// any convolution.
std::vector<CudaConv2d> cuda_conv2d_choices(const Conv2dShape& shape, const Conv2dParams& params,
                                            const Conv2dWeights& weights, int images, const CudaGpu& gpu);

/// Returns what the kernel reads besides tensors, to be copied to the device unchanged (256-byte aligned): packed
/// weight codes and, for each output channel, multiplier, bias and the correction (zero point of x) * sum(w).
std::vector<uint8_t> cuda_conv2d_pack(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                                      const Conv2dWeights& weights);

/// Returns the bytes of device scratch that one launch needs (kCudaWorkspaceZeros among them), for split_k > 1 without
/// a cluster. Convolutions share one workspace of the largest size.
size_t cuda_conv2d_workspace(const CudaConv2d& conv, const Conv2dShape& shape, int images);

/// Returns whether the kernel can run concurrently with the one before it (CudaConv2dData::beside).
bool cuda_conv2d_runs_beside(const CudaConv2d& conv);

/// Device tensors of `images` consecutive images: x [images, H, W, in_stride], residual [images, OH, OW,
/// residual_stride] or null, y [images, OH, OW, out_stride] (float32 with out_stride == out_c, with float_output). Of
/// each pixel of y the out_c channels are written, and possibly lanes up to the next multiple of 16 within the stride.
struct CudaConv2dData {
  int images = 0;
  const void* packed = nullptr;  ///< from cuda_conv2d_pack()
  const void* x = nullptr;
  const void* residual = nullptr;
  void* y = nullptr;
  void* workspace = nullptr;
  /// [256] on the device, aligned to 16 bytes: if given, y holds lookup[code] instead of the code. Not with
  /// float_output.
  const uint8_t* lookup = nullptr;
  /// The kernel may run concurrently with the one before it in the stream, which itself waits for all earlier kernels
  /// (kernels/core/launch.cuh): neither writes what the other reads or writes. Only if cuda_conv2d_runs_beside().
  bool beside = false;
};

/// Launches the kernel. Throws Error(promise) if the launch fails.
void cuda_conv2d(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                 const CudaConv2dData& data, CudaStream stream);

}  // namespace octet::kernels
