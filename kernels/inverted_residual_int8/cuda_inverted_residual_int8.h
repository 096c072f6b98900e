// The inverted residual on the GPU in one kernel: what lies between its convolutions is never in memory. Variants all
// give the reference's bytes (inverted_residual_int8.h) and are chosen by measurement, as those of one convolution are.
// No CUDA types here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/conv2d_int8/cuda_conv2d.h"
#include "kernels/inverted_residual_int8/inverted_residual_int8.h"

namespace octet::kernels {

/// One way to run a block: how its output falls into tiles of thread blocks.
struct CudaInvertedResidual {
  int rows = 1;    ///< output rows that a warp computes of each of its 16 columns
  int strips = 1;  ///< of that many rows: a tile's height
  int width = 1;   ///< of a tile
  int images = 1;  ///< that a tile spans: more than one where a tile is a whole image, two in turns behind expand
  int groups = 1;  ///< of a tile's warps, each with some of the hidden channels; their sums are added up
  int parts = 1;   ///< thread blocks of a cluster that share the hidden channels as groups do
  int turns = 1;   ///< tiles that a thread block computes one after the other; then it has one group and one part

  /// "inverted_residual_8x14_r2", "..._i2" of two images, "..._g3" of three groups, "..._c4" of four parts,
  /// "..._t7" of seven turns
  std::string name() const;
  bool operator==(const CudaInvertedResidual&) const = default;
};

/// Whether a kernel can run this block of `images` images on a GPU: not with windows other than 3x3, a float output,
/// strides that are no multiples of 16 bytes, more than 160 channels out, a GPU that is older than compute capability
/// 8.0, constants whose scales are extreme. Throws Error(promise) when the convolutions do not fit each other.
bool cuda_runs_inverted_residual(const InvertedResidual& block, int images, const CudaGpu& gpu);

/// All that can run it, the likely fastest first; empty where none can.
std::vector<CudaInvertedResidual> cuda_inverted_residual_choices(const InvertedResidual& block, int images,
                                                                 const CudaGpu& gpu);

/// What the kernel reads besides tensors, to be copied to the device as it is (256-byte aligned). The same for every
/// choice.
std::vector<uint8_t> cuda_inverted_residual_pack(const InvertedResidual& block);

/// Tensors on the device, as CudaConv2dData has them: x of the first convolution, residual and y of the last.
struct CudaInvertedResidualData {
  int images = 0;
  const void* packed = nullptr;  ///< from cuda_inverted_residual_pack
  const void* x = nullptr;
  const void* residual = nullptr;
  void* y = nullptr;
};

/// Allocates nothing and never synchronizes. Throws Error(promise) when the launch fails.
void cuda_inverted_residual(const CudaInvertedResidual& choice, const InvertedResidual& block,
                            const CudaInvertedResidualData& data, CudaStream stream);

}  // namespace octet::kernels
