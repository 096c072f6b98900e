// SPDX-License-Identifier: Apache-2.0
// A convolution and the lookup of one table a channel that reads it, in one kernel: a group as groups.h describes. The
// kernels are those of the wgmma family (compute capability 9.0), which keep the tables of their tile's channels in
// shared memory.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "kernels/groups/groups.h"

namespace octet::kernels {

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
