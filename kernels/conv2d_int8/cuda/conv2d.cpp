// Checks a convolution against the contract of cuda_conv2d.h and hands it to the families that can run it.
#include "kernels/conv2d_int8/cuda_conv2d.h"

#include <array>
#include <climits>

#include "kernels/conv2d_int8/conv2d_check.h"
#include "kernels/conv2d_int8/cuda/family.h"
#include "src/common/error.h"

namespace octet::kernels {
namespace {

/// In order of preference. A family's place and its own variant number make CudaConv2d::variant.
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
  // Kernels count pixels of a batch and bytes of an input image in 32 bits, bytes of a batch in 64.
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

}  // namespace octet::kernels
