// The kernels behind cuda_conv2d.h, a family each. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/conv2d_int8/cuda_conv2d.h"

namespace octet::kernels {

/// A convolution to find kernels for.
struct CudaConvProblem {
  const Conv2dShape& shape;
  const Conv2dParams& params;
  const Conv2dWeights& weights;
  int images;
  CudaGpu gpu;
};

/// One kernel with its tile shapes. Inside a family CudaConv2d::variant counts from 0; conv2d.cpp makes it unique.
/// Shape and parameters have been checked.
struct CudaConvFamily {
  /// Appends what can run this convolution, the likely fastest first; nothing when the family cannot.
  void (*choices)(const CudaConvProblem& problem, std::vector<CudaConv2d>& found);
  std::vector<uint8_t> (*pack)(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                               const Conv2dWeights& weights);
  size_t (*workspace)(const CudaConv2d& conv, const Conv2dShape& shape, int images);  ///< null: never any
  void (*launch)(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                 const CudaConv2dData& data, CudaStream stream);
  bool runs_beside = false;  ///< launch() heeds CudaConv2dData::beside
};

const CudaConvFamily& cuda_depthwise_3x3_family();
const CudaConvFamily& cuda_depthwise_5x5_family();
const CudaConvFamily& cuda_image_family();   ///< up to 4 input channels, on tensor cores
const CudaConvFamily& cuda_wgmma_family();   ///< one group, 16-byte strides, codes out: tensor cores of Hopper
const CudaConvFamily& cuda_mma_family();     ///< one group, 16-byte strides: tensor cores
const CudaConvFamily& cuda_dp4a_family();    ///< grouped and depthwise of any window
const CudaConvFamily& cuda_direct_family();  ///< everything, slowly

/// The head of packed data: per output channel, padded with zeros to `channels`.
struct CudaChannelConstants {
  const float* multiplier;
  const float* bias;
  const int32_t* init;  ///< -(zero point of x) * sum(w), which an accumulator starts from
};

constexpr int cuda_round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

/// Bytes before the weights: a multiple of 256.
size_t cuda_constants_bytes(int channels);

/// Constants for `channels` >= shape.out_c channels and, after cuda_constants_bytes(channels), `weight_bytes` zeros for
/// the caller to fill.
std::vector<uint8_t> cuda_pack_constants(const Conv2dShape& shape, const Conv2dParams& params,
                                         const Conv2dWeights& weights, int channels, size_t weight_bytes);

/// Where the constants lie behind CudaConv2dData::packed.
CudaChannelConstants cuda_channel_constants(const void* packed, int channels);

}  // namespace octet::kernels
