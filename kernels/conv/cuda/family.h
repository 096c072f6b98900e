// SPDX-License-Identifier: Apache-2.0
// The families of kernels behind cuda_conv2d(), and the constants at the head of their packed data. Internal to
// kernels/conv and kernels/groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/conv/conv2d.h"

namespace octet::kernels {

/// A convolution for which a family offers kernels.
struct CudaConvProblem {
  const Conv2dShape& shape;
  const Conv2dParams& params;
  const Conv2dWeights& weights;
  int images;
  CudaGpu gpu;
};

/// A kernel template with its tile shapes, as four functions. Within a family CudaConv2d::variant counts from 0;
/// conv2d.cpp makes it unique. Shape and parameters have been checked before these functions are called.
struct CudaConvFamily {
  /// Appends the family's alternatives for this convolution, the likely fastest first; none if it does not support it.
  void (*choices)(const CudaConvProblem& problem, std::vector<CudaConv2d>& found);
  std::vector<uint8_t> (*pack)(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                               const Conv2dWeights& weights);
  size_t (*workspace)(const CudaConv2d& conv, const Conv2dShape& shape, int images);  ///< null if none is ever needed
  void (*launch)(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                 const CudaConv2dData& data, CudaStream stream);
  bool runs_beside = false;  ///< whether launch() supports CudaConv2dData::beside
};

const CudaConvFamily& cuda_depthwise_3x3_family();  ///< depthwise 3x3 of stride 1 or 2
const CudaConvFamily& cuda_depthwise_5x5_family();  ///< depthwise 5x5 of stride 1 or 2
const CudaConvFamily& cuda_image_family();          ///< up to 4 input channels, on tensor cores
const CudaConvFamily& cuda_wgmma_family();          ///< one group, 16-byte strides, codes out: tensor cores of Hopper
const CudaConvFamily& cuda_mma_family();            ///< one group, 16-byte strides: tensor cores
const CudaConvFamily& cuda_dp4a_family();           ///< grouped and depthwise convolutions with any window
const CudaConvFamily& cuda_direct_family();         ///< any convolution, slowly

/// The arrays at the head of packed data: one value per output channel, padded with zeros to `channels`.
struct CudaChannelConstants {
  const float* multiplier;
  const float* bias;
  const int32_t* init;  ///< where an accumulator starts: -(zero point of x) * sum(w)
};

/// Returns the bytes of the constants before the weights, a multiple of 256.
size_t cuda_constants_bytes(int channels);

/// Returns packed data with the constants of `channels` >= shape.out_c channels and, from byte
/// cuda_constants_bytes(channels) on, `weight_bytes` zeros for the caller to fill.
std::vector<uint8_t> cuda_pack_constants(const Conv2dShape& shape, const Conv2dParams& params,
                                         const Conv2dWeights& weights, int channels, size_t weight_bytes);

/// Returns pointers to the constants in packed data, on the host or on the device.
CudaChannelConstants cuda_channel_constants(const void* packed, int channels);

}  // namespace octet::kernels
