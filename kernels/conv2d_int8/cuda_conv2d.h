// int8 convolution on the GPU: variants that all give the reference's bytes (conv2d_int8.h), chosen by measurement.
//
// A variant is a kernel with its tile shape. Weights are packed on the host for one variant, once; launching it is then
// a function of plain data: it allocates nothing and never synchronizes. No CUDA types here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/conv2d_int8/conv2d_int8.h"
#include "kernels/cuda_stream.h"
#include "kernels/cuda_workspace.h"

namespace octet::kernels {

/// Bytes between neighbouring pixels of a code tensor on the GPU: 16-byte rows for 16-byte copies, 4-byte rows for
/// pictures (up to 4 channels). Lanes between channels and stride may hold anything.
inline int cuda_channel_stride(int channels) { return channels <= 4 ? 4 : (channels + 15) / 16 * 16; }

/// Every tensor starts at a multiple of 256 bytes and may be read up to this many bytes past its end.
inline constexpr size_t kCudaReadSlack = 256;

/// One way to run a convolution.
struct CudaConv2d {
  int variant = 0;          ///< which kernel and tile; meaningful to its family only
  int split_k = 1;          ///< parts of the sum, each computed by a block of its own
  bool in_cluster = false;  ///< the parts' blocks are a cluster and add up in shared memory; else in the workspace
  std::string name;         ///< "mma_128x128x64_s3", "mma_64x64x64_s4_k4", "dp4a_8x4_w3", "direct": for LayerInfo
};

/// What kernels are chosen for.
struct CudaGpu {
  int capability = 0;  ///< 90 for compute capability 9.0
  int multiprocessors = 0;
};

/// All that can run this convolution of `images` images on a GPU, the likely fastest first. Never empty: "direct" runs
/// everything.
std::vector<CudaConv2d> cuda_conv2d_choices(const Conv2dShape& shape, const Conv2dParams& params,
                                            const Conv2dWeights& weights, int images, const CudaGpu& gpu);

/// What the kernel reads besides tensors, to be copied to the device as it is (256-byte aligned): packed weight codes,
/// multiplier, bias, and the correction (zero point of x) * sum(w) of each output channel.
std::vector<uint8_t> cuda_conv2d_pack(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                                      const Conv2dWeights& weights);

/// Device scratch for split_k > 1 without a cluster (cuda_workspace.h), of one launch at a time: convolutions share
/// one, of the largest size.
size_t cuda_conv2d_workspace(const CudaConv2d& conv, const Conv2dShape& shape, int images);

/// Whether the kernel can run beside the one before it (CudaConv2dData::beside).
bool cuda_conv2d_runs_beside(const CudaConv2d& conv);

/// Tensors on the device, `images` images one after another: x [images, H, W, in_stride], residual [images, OH, OW,
/// residual_stride] or null, y [images, OH, OW, out_stride] (float32, out_stride == out_c, with float_output). Of each
/// pixel of y the out_c channels are written, and perhaps lanes up to the next multiple of 16 within the stride.
struct CudaConv2dData {
  int images = 0;
  const void* packed = nullptr;  ///< from cuda_conv2d_pack
  const void* x = nullptr;
  const void* residual = nullptr;
  void* y = nullptr;
  void* workspace = nullptr;
  /// [256] on the device, not with float_output: y holds lookup[code] in place of each code. Null: the codes.
  const uint8_t* lookup = nullptr;
  /// The kernel before this one in the stream, which waits for those before it as kernels/cuda_overlap.h says, still
  /// runs: neither of the two writes what the other reads or writes. Only where cuda_conv2d_runs_beside().
  bool beside = false;
};

/// Throws Error(promise) when the launch fails.
void cuda_conv2d(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                 const CudaConv2dData& data, CudaStream stream);

}  // namespace octet::kernels
