// SPDX-License-Identifier: Apache-2.0
// Checks a convolution against the contract with the cuda engine and passes it to the families that can run it; packs
// the constants that every family reads.
#include "kernels/conv/conv2d.h"

#include <array>
#include <climits>
#include <cstring>

#include "kernels/conv/cuda/family.h"
#include "src/base/error.h"

namespace octet::kernels {
namespace {

/// The families in order of preference. CudaConv2d::variant is made of a family's index and its own variant number.
const std::array kFamilies = {
    &cuda_depthwise_3x3_family, &cuda_depthwise_5x5_family, &cuda_image_family,  &cuda_wgmma_family,
    &cuda_mma_family,           &cuda_dp4a_family,          &cuda_direct_family,
};
constexpr int kVariantsPerFamily = 1000;

const CudaConvFamily& family_of(const CudaConv2d& conv) {
  const int family = conv.variant / kVariantsPerFamily;
  if (conv.variant < 0 || family >= static_cast<int>(kFamilies.size())) {
    throw promise_error("cuda convolution: no variant " + std::to_string(conv.variant) + " (" + conv.name + ")");
  }
  return kFamilies[family]();
}

CudaConv2d within_family(CudaConv2d conv) {
  conv.variant %= kVariantsPerFamily;
  return conv;
}

void require(bool ok, const char* what) { require_conv2d(ok, "cuda", what); }

bool is_code(int32_t value, bool is_signed) {
  return is_signed ? value >= -128 && value <= 127 : value >= 0 && value <= 255;
}

void check(const Conv2dShape& g, const Conv2dParams& p, const Conv2dWeights& w, int images) {
  require(images > 0, "empty tensor");
  check_conv2d(g, p, w, "cuda");
  require(is_code(p.x.zero_point, p.x.is_signed), "input zero point is no code");
  require(p.y.float_output || (is_code(p.y.clamp_min, p.y.is_signed) && is_code(p.y.clamp_max, p.y.is_signed) &&
                               p.y.clamp_min <= p.y.clamp_max),
          "clamp bounds are no codes");
  // Kernels count the pixels of a batch and the bytes of an input image in 32 bits, the bytes of a batch in 64.
  require(static_cast<long>(images) * g.in_h * g.in_w <= INT_MAX &&
              static_cast<long>(images) * g.out_h * g.out_w <= INT_MAX,
          "more than 2^31 pixels in a batch");
  require(static_cast<long>(g.in_h) * g.in_w * g.in_stride <= INT_MAX, "an image of more than 2^31 bytes");
}

}  // namespace

std::vector<CudaConv2d> cuda_conv2d_choices(const Conv2dShape& shape, const Conv2dParams& params,
                                            const Conv2dWeights& weights, int images, const CudaGpu& gpu) {
  check(shape, params, weights, images);
  std::vector<CudaConv2d> all;
  for (size_t family = 0; family < kFamilies.size(); ++family) {
    std::vector<CudaConv2d> found;
    kFamilies[family]().choices({shape, params, weights, images, gpu}, found);
    for (CudaConv2d& conv : found) {
      conv.variant += static_cast<int>(family) * kVariantsPerFamily;
      all.push_back(std::move(conv));
    }
  }
  return all;
}

std::vector<uint8_t> cuda_conv2d_pack(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                                      const Conv2dWeights& weights) {
  return family_of(conv).pack(within_family(conv), shape, params, weights);
}

size_t cuda_conv2d_workspace(const CudaConv2d& conv, const Conv2dShape& shape, int images) {
  const auto workspace = family_of(conv).workspace;
  return workspace ? workspace(within_family(conv), shape, images) : 0;
}

bool cuda_conv2d_runs_beside(const CudaConv2d& conv) { return family_of(conv).runs_beside; }

void cuda_conv2d(const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                 const CudaConv2dData& data, CudaStream stream) {
  family_of(conv).launch(within_family(conv), shape, params, data, stream);
}

size_t cuda_constants_bytes(int channels) {
  constexpr size_t kAlign = 256;
  return (static_cast<size_t>(channels) * 12 + kAlign - 1) / kAlign * kAlign;
}

CudaChannelConstants cuda_channel_constants(const void* packed, int channels) {
  const float* multiplier = static_cast<const float*>(packed);
  return {multiplier, multiplier + channels, reinterpret_cast<const int32_t*>(multiplier + 2 * channels)};
}

std::vector<uint8_t> cuda_pack_constants(const Conv2dShape& shape, const Conv2dParams& params,
                                         const Conv2dWeights& weights, int channels, size_t weight_bytes) {
  std::vector<uint8_t> packed(cuda_constants_bytes(channels) + weight_bytes);
  std::vector<int32_t> init(shape.out_c);
  const int taps = shape.kernel_h * shape.kernel_w * (shape.in_c / shape.groups);
  for (int k = 0; k < shape.out_c; ++k) {
    int32_t sum = 0;
    for (int i = 0; i < taps; ++i) sum += weights.weight[static_cast<ptrdiff_t>(k) * taps + i];
    init[k] = -params.x.zero_point * sum;
  }
  const size_t bytes = static_cast<size_t>(shape.out_c) * 4, step = static_cast<size_t>(channels) * 4;
  std::memcpy(packed.data(), weights.multiplier, bytes);
  std::memcpy(packed.data() + step, weights.bias, bytes);
  std::memcpy(packed.data() + 2 * step, init.data(), bytes);
  return packed;
}

}  // namespace octet::kernels
