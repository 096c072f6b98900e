// SPDX-License-Identifier: Apache-2.0
// int8 convolution: shape, parameters, the reference that defines its bytes, the checks that every implementation
// begins with, and what runs it on the CPU and on the GPU. The arithmetic is that of kernels/core/quantize.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/core/codes.h"
#include "kernels/core/cpu.h"
#include "kernels/core/cuda.h"

namespace octet::kernels {

struct LookupTable;

/// The geometry of one image. Tensors are NHWC; `*_stride` is the distance between neighbouring pixels in elements and
/// is at least the number of channels. pad_h and pad_w are the padding before the first row and column; the padding
/// behind the last follows from the output's size (pad_bottom(), pad_right()).
struct Conv2dShape {
  int in_c = 0, in_h = 0, in_w = 0, in_stride = 0;
  int out_c = 0, out_h = 0, out_w = 0, out_stride = 0;
  int residual_stride = 0;
  int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1,
      groups = 1;
};

/// The constants of a convolution, in host memory and owned by the caller.
struct Conv2dWeights {
  const int8_t* weight = nullptr;     ///< [K, R, S, C/groups]
  const float* multiplier = nullptr;  ///< [K]
  const float* bias = nullptr;        ///< [K]
};

/// How the tensors of a convolution are quantized. With y.float_output, y holds t itself as float32.
struct Conv2dParams {
  CodeInput x;
  CodeOutput y;
  bool has_residual = false;
  CodeInput residual;
  float residual_multiplier = 0;
};

/// Computes one image; this function is the definition. x: codes [H, W, in_stride]; residual: codes [OH, OW,
/// residual_stride] or null; y: codes [OH, OW, out_stride], or float32 with float_output.
void conv2d_int8_reference(const Conv2dShape& shape, const Conv2dParams& params, const Conv2dWeights& weights,
                           const void* x, const void* residual, void* y);

/// Returns how many rows (or columns) the last window reaches beyond the image; negative if it leaves some out.
inline int pad_behind(int in, int out, int kernel, int stride, int pad, int dilation) {
  return (out - 1) * stride + dilation * (kernel - 1) + 1 - in - pad;
}
inline int pad_bottom(const Conv2dShape& g) {
  return pad_behind(g.in_h, g.out_h, g.kernel_h, g.stride_h, g.pad_h, g.dilation_h);
}
inline int pad_right(const Conv2dShape& g) {
  return pad_behind(g.in_w, g.out_w, g.kernel_w, g.stride_w, g.pad_w, g.dilation_w);
}

/// Throws Error(promise) "<who> convolution: <what>" unless `ok`. who: "cpu", "cuda".
void require_conv2d(bool ok, const char* who, const char* what);

/// Throws as require_conv2d() unless sizes, window, groups and strides are valid and all constants are given. An
/// implementation calls this before it packs or runs a convolution, and adds its own limits.
void check_conv2d(const Conv2dShape& shape, const Conv2dParams& params, const Conv2dWeights& weights, const char* who);

// On the CPU. Weights are packed once when a network is compiled; run() then computes any range of
// tasks without allocating. Every path gives the bytes of conv2d_int8_reference().
//
// The contract with the cpu engine:
//  - Activations are uint8 everywhere. The engine shifts signed tensors by +128 beforehand (codes, zero points,
//    clamps), so is_signed of Conv2dParams::x, y and residual is false here; create() refuses anything else.
//  - Tensors are NHWC with any pixel stride >= channels; images of a batch follow each other at height * width *
//    stride. The engine uses cpu_channel_stride(channels).
//  - The lanes between channels and stride are read and may hold any initialized bytes; they never affect a result.
//  - Up to kCpuReadSlack bytes behind the last pixel of x are read too, and must belong to the caller.
//  - Exactly out_c channels of each pixel of y are written and the lanes behind them keep their bytes, so that a
//    convolution can write into a slice of a wider tensor.

/// Returns the bytes from one pixel to the next in the cpu engine: 4 for up to 4 channels, else a multiple of 16.
constexpr int cpu_channel_stride(int channels) { return channels <= 4 ? 4 : (channels + 15) / 16 * 16; }

/// Bytes behind the last pixel of an input that a kernel may read and ignore.
inline constexpr size_t kCpuReadSlack = 64;

/// The tensors of one run.
struct CpuConv2dBatch {
  int images = 1;
  const uint8_t* x = nullptr;           ///< [images, in_h, in_w, in_stride]
  const uint8_t* residual = nullptr;    ///< [images, out_h, out_w, residual_stride], when has_residual
  void* y = nullptr;                    ///< uint8, or float with float_output: [images, out_h, out_w, out_stride]
  const LookupTable* lookup = nullptr;  ///< if given, y holds table[code]; not with float_output
};

/// One convolution with its packed weights. Several threads may call run() concurrently, each with its own range of
/// tasks and its own workspace.
class CpuConv2d {
 public:
  virtual ~CpuConv2d() = default;

  /// Packs the weights and keeps no pointer to them. Throws Error(usage) when `isa` is not available, and
  /// Error(promise) when shape or params break the contract above.
  static std::unique_ptr<CpuConv2d> create(const Conv2dShape& shape, const Conv2dParams& params,
                                           const Conv2dWeights& weights, CpuIsa isa);

  virtual std::string name() const = 0;        ///< name in reports, such as "conv3x3_avx512_vnni_14x32"
  virtual size_t packed_bytes() const = 0;     ///< bytes of packed weights and per-channel constants
  virtual size_t workspace_bytes() const = 0;  ///< 64-byte aligned scratch that each thread needs; may be 0
  virtual int tasks(int images) const = 0;     ///< number of independent tasks of similar size
  /// Computes tasks [begin, end) of tasks(batch.images).
  virtual void run(const CpuConv2dBatch& batch, int begin, int end, void* workspace) const = 0;
};

// On the GPU: alternatives that all give the reference's bytes, from which the engine chooses by measurement. An
// alternative is a kernel with its tile shape. Weights are packed on the host once for that alternative. Launching it
// is then a function of plain data that allocates nothing and never synchronizes. No CUDA types here.

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
