// SPDX-License-Identifier: Apache-2.0
#include "kernels/groups/groups.h"

#include "kernels/conv/cuda/wgmma/wgmma.h"

namespace octet::kernels {

std::vector<CudaConv2d> cuda_conv_lookup_choices(const ConvLookup& layers, int images, const CudaGpu& gpu) {
  const ConvNode& conv = layers.conv;
  std::vector<CudaConv2d> found;
  if (conv.params.has_residual) return found;
  wgmma_channel_lookup_choices({conv.shape, conv.params, conv.weights, images, gpu}, found);
  for (CudaConv2d& choice : found) choice.name += "_channel_lookup";
  return found;
}

// Tables come first: their size is a multiple of 4096 bytes, so that what follows is aligned as it must be.
std::vector<uint8_t> cuda_conv_lookup_pack(const CudaConv2d& choice, const ConvLookup& layers) {
  const ConvNode& conv = layers.conv;
  std::vector<uint8_t> packed = layers.tables;
  const std::vector<uint8_t> weights = wgmma_pack(choice, conv.shape, conv.params, conv.weights);
  packed.insert(packed.end(), weights.begin(), weights.end());
  return packed;
}

void cuda_conv_lookup(const CudaConv2d& choice, const ConvLookup& layers, const CudaConvLookupData& data,
                      CudaStream stream) {
  const uint8_t* tables = static_cast<const uint8_t*>(data.packed);
  const CudaConv2dData tensors{
      .images = data.images, .packed = tables + layers.tables.size(), .x = data.x, .y = data.y};
  wgmma_channel_lookup(choice, layers.conv.shape, layers.conv.params, tensors, tables, stream);
}

}  // namespace octet::kernels
