// Two 1x1 convolutions in one kernel: the one that widens a ResNet's block, with its residual, and the one that narrows
// the next block behind it. Byte for byte as the two by cuda_conv2d(); both outputs are written. Compute
// capability 9.0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/conv2d_int8/conv2d_int8.h"
#include "kernels/conv2d_int8/cuda_conv2d.h"
#include "kernels/cuda_stream.h"

namespace octet::kernels {

/// A convolution without its tensors; the shape for one image.
struct PointwiseConv {
  Conv2dShape shape;
  Conv2dParams params;
  Conv2dWeights weights;
};

/// `reduce` reads what `expand` writes.
struct ExpandReduce {
  PointwiseConv expand, reduce;
};

/// How a tile of pixels falls to the blocks of a cluster: each has 128 channels of the wide tensor and 32 of the narrow
/// one.
struct CudaExpandReduce {
  int cluster = 0;
  int pixels = 0;  ///< of a tile: 16 or 32
  std::string name() const { return "expand_reduce_c" + std::to_string(cluster) + "_p" + std::to_string(pixels); }
};

/// Nothing where the kernel cannot: it takes 32 C -> 128 C -> 32 C channels for C of 2, 4, 8 and 16, 1x1 with stride 1
/// and no padding, the second on the first's pixels, codes and zero point. Nor where blocks do not about all run at
/// once: each reads all its weights for one tile.
std::vector<CudaExpandReduce> cuda_expand_reduce_choices(const ExpandReduce& layers, int images, const CudaGpu& gpu);

/// Constants and weights of both, to be copied to the device as they are (256-byte aligned). The same for every choice.
std::vector<uint8_t> cuda_expand_reduce_pack(const ExpandReduce& layers);

/// On the device: x [images, H, W, 32 C], residual and wide [images, H, W, 128 C], narrow [images, H, W, 32 C], at the
/// strides of the shapes.
struct CudaExpandReduceData {
  int images = 0;
  const void* packed = nullptr;
  const void* x = nullptr;
  const void* residual = nullptr;  ///< null without one
  void* wide = nullptr;
  void* narrow = nullptr;
};

/// Throws Error(promise) when the launch fails.
void cuda_expand_reduce(const CudaExpandReduce& choice, const ExpandReduce& layers, const CudaExpandReduceData& data,
                        CudaStream stream);

}  // namespace octet::kernels
