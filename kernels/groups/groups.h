// SPDX-License-Identifier: Apache-2.0
// Groups of nodes that one CUDA kernel runs, so that tensors between the nodes are never in memory (but for
// expand + reduce, which writes both outputs). Every kernel gives the bytes of the nodes run one after the other
// (conv2d.h, pool.h).
//
// Each group has the layers that it runs, one struct for an alternative, and four functions: `..._choices()` returns
// the alternatives, the likely fastest first, from which the engine chooses by measurement; `..._pack()` returns what a
// kernel reads besides tensors, to be copied to the device unchanged (256-byte aligned) and the same for every
// alternative; the function named as the group launches a kernel, allocates nothing, never synchronizes, and throws
// Error(promise) if the launch fails. No CUDA types here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "kernels/core/cuda.h"
#include "kernels/operators/pool.h"

namespace octet::kernels {

/// A convolution of a group; the shape is for one image.
struct ConvNode {
  Conv2dShape shape;
  Conv2dParams params;
  Conv2dWeights weights;
};

/// The inverted residual of MobileNetV2: a 1x1 convolution that widens, a depthwise 3x3 and a 1x1 convolution that
/// narrows, possibly with a residual. Each reads what the one before it writes: channels, height, width and codes
/// agree. The strides of the tensors between them are ignored.
struct InvertedResidual {
  bool has_expand = true;  ///< false in MobileNetV2's first block, whose depthwise convolution reads x
  ConvNode expand, depthwise, project;

  const ConvNode& first() const { return has_expand ? expand : depthwise; }
};

/// An alternative for an inverted residual: how its output is divided into tiles of thread blocks.
struct CudaInvertedResidual {
  int rows = 1;    ///< output rows that a warp computes of each of its 16 columns
  int strips = 1;  ///< strips of `rows` rows in a tile, whose height is rows * strips
  int width = 1;   ///< width of a tile
  int images = 1;  ///< images of a tile: above 1 only if a tile is a whole image, or 2 in turns with an expand layer
  int groups = 1;  ///< groups of warps that each compute some of the hidden channels; their sums are added up
  int parts = 1;   ///< thread blocks of a cluster that share the hidden channels in the same way
  int turns = 1;   ///< tiles that a thread block computes one after the other; above 1 groups and parts are 1

  /// "inverted_residual_8x14_r2" with suffixes "_i2" for images, "_g3" for groups, "_c4" for parts, "_t7" for turns.
  std::string name() const;
  bool operator==(const CudaInvertedResidual&) const = default;
};

/// Returns whether a kernel can run this block with `images` images on a GPU: 3x3 windows, codes out, strides that are
/// multiples of 16 bytes, at most 160 channels out, compute capability 8.0 or newer, and scales that are not extreme.
/// Throws Error(promise) if the convolutions do not fit together.
bool cuda_runs_inverted_residual(const InvertedResidual& block, int images, const CudaGpu& gpu);

/// Returns the alternatives; none unless cuda_runs_inverted_residual().
std::vector<CudaInvertedResidual> cuda_inverted_residual_choices(const InvertedResidual& block, int images,
                                                                 const CudaGpu& gpu);
std::vector<uint8_t> cuda_inverted_residual_pack(const InvertedResidual& block);

/// Device tensors as in CudaConv2dData: x of the first convolution, residual and y of the last.
struct CudaInvertedResidualData {
  int images = 0;
  const void* packed = nullptr;  ///< from cuda_inverted_residual_pack()
  const void* x = nullptr;
  const void* residual = nullptr;
  void* y = nullptr;
};
void cuda_inverted_residual(const CudaInvertedResidual& choice, const InvertedResidual& block,
                            const CudaInvertedResidualData& data, CudaStream stream);

/// Two 1x1 convolutions of a ResNet: the one that widens at the end of a block, with its residual, and the one that
/// narrows at the start of the next block and reads what the first writes.
struct ExpandReduce {
  ConvNode expand, reduce;
};

/// An alternative for expand + reduce: how a tile of pixels is divided among the blocks of a cluster, of which each
/// computes 128 channels of the wide tensor and 32 of the narrow one.
struct CudaExpandReduce {
  int cluster = 0;
  int pixels = 0;  ///< pixels of a tile: 16 or 32
  std::string name() const { return "expand_reduce_c" + std::to_string(cluster) + "_p" + std::to_string(pixels); }
};

/// Returns the alternatives. None unless the GPU has compute capability 9.0, the layers are 1x1 with stride 1 and no
/// padding of 32 C -> 128 C -> 32 C channels for C of 2, 4, 8 or 16, and the second reads the first's pixels, codes and
/// zero point; nor if the blocks would not all run at about the same time, since each reads all its weights for one
/// tile.
std::vector<CudaExpandReduce> cuda_expand_reduce_choices(const ExpandReduce& layers, int images, const CudaGpu& gpu);
std::vector<uint8_t> cuda_expand_reduce_pack(const ExpandReduce& layers);

/// Device tensors, at the strides of the shapes: x [images, H, W, 32 C], residual and wide [images, H, W, 128 C],
/// narrow [images, H, W, 32 C].
struct CudaExpandReduceData {
  int images = 0;
  const void* packed = nullptr;  ///< from cuda_expand_reduce_pack()
  const void* x = nullptr;
  const void* residual = nullptr;  ///< null without one
  void* wide = nullptr;
  void* narrow = nullptr;
};
void cuda_expand_reduce(const CudaExpandReduce& choice, const ExpandReduce& layers, const CudaExpandReduceData& data,
                        CudaStream stream);

/// A first layer and the max-pool that reads what it writes: channels, height, width and codes agree. The stride of the
/// tensor between them is ignored.
struct ConvMaxPool {
  Conv2dShape conv;
  Conv2dParams conv_params;
  Conv2dWeights weights;
  PoolShape pool;
  MaxPoolParams pool_params;
};

/// An alternative for conv + max-pool.
struct CudaConvMaxPool {
  int rows = 1;      ///< rows of the pool's output in a tile
  std::string name;  ///< "mma_image_max_pool_7_r4": window rows that the kernel is compiled for, rows of a tile
};

/// Returns the alternatives. None unless the convolution has up to 4 channels in (in 4 bytes), a window of at most
/// 7 x 8, stride 2, no dilation and no residual, and the pool is 3 x 3 with stride 2 and padding of at most 1.
std::vector<CudaConvMaxPool> cuda_conv_max_pool_choices(const ConvMaxPool& layers);
std::vector<uint8_t> cuda_conv_max_pool_pack(const ConvMaxPool& layers);

/// Device tensors as in CudaConv2dData: x of the convolution, y of the pool.
struct CudaConvMaxPoolData {
  int images = 0;
  const void* packed = nullptr;  ///< from cuda_conv_max_pool_pack()
  const void* x = nullptr;
  void* y = nullptr;
};
void cuda_conv_max_pool(const CudaConvMaxPool& choice, const ConvMaxPool& layers, const CudaConvMaxPoolData& data,
                        CudaStream stream);

/// The end of a network: a global average and the linear layer (a 1x1 convolution of a 1x1 image) that reads it. The
/// stride of the tensor between them is ignored.
struct PoolLinear {
  PoolShape pool;
  AvgPoolParams pool_params;
  Conv2dShape linear;
  Conv2dParams linear_params;
  Conv2dWeights weights;
};

/// An alternative for pool + linear.
struct CudaPoolLinear {
  int cluster = 1;  ///< thread blocks that share the averages, each computing those of a part of the channels

  std::string name() const;  ///< "avg_pool_linear", or "avg_pool_linear_c8" for clusters of 8
};

/// The most images for which pool + linear is offered, because the kernel reads all weights again for each image.
inline constexpr int kPoolLinearImages = 8;

/// Returns the alternatives. None unless the average is that of whole images and writes codes, its input's stride is a
/// multiple of 16, there are at most 2,048 channels in, no residual, and at most kPoolLinearImages images.
std::vector<CudaPoolLinear> cuda_pool_linear_choices(const PoolLinear& layers, int images, const CudaGpu& gpu);
std::vector<uint8_t> cuda_pool_linear_pack(const PoolLinear& layers);

/// Device tensors: x [images, H, W, in_stride] codes; y [images, out_stride] codes, or float32.
struct CudaPoolLinearData {
  int images = 0;
  const void* packed = nullptr;  ///< from cuda_pool_linear_pack()
  const void* x = nullptr;
  void* y = nullptr;
};
void cuda_pool_linear(const CudaPoolLinear& choice, const PoolLinear& layers, const CudaPoolLinearData& data,
                      CudaStream stream);

/// A convolution and the lookup of one table a channel that reads it. The kernels are those of the wgmma family
/// (compute capability 9.0), which keep the tables of their tile's channels in shared memory.
struct ConvLookup {
  ConvNode conv;                ///< without a residual
  std::vector<uint8_t> tables;  ///< [out_c rounded up to 16, 256]
};

/// The tensors of a batch on the device; `packed` is what cuda_conv_lookup_pack() returns.
struct CudaConvLookupData {
  int images = 1;
  const void* packed = nullptr;
  const void* x = nullptr;
  void* y = nullptr;
};

std::vector<CudaConv2d> cuda_conv_lookup_choices(const ConvLookup& layers, int images, const CudaGpu& gpu);

/// Unlike other groups' it depends on CudaConv2d::variant.
std::vector<uint8_t> cuda_conv_lookup_pack(const CudaConv2d& choice, const ConvLookup& layers);

void cuda_conv_lookup(const CudaConv2d& choice, const ConvLookup& layers, const CudaConvLookupData& data,
                      CudaStream stream);

}  // namespace octet::kernels
