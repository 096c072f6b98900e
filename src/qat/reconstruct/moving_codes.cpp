#include "src/qat/reconstruct/moving_codes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/zeros.h>

#include "src/qat/reconstruct/rounding.h"

namespace octet {
namespace {

constexpr double kFromCode = 0.45, kWithinCode = 0.49;

}  // namespace

MovingCodes::MovingCodes(const at::Tensor& rounded, const at::Tensor& floats, const std::vector<float>& scale,
                         const WeightCodes& codes, bool per_tensor)
    : codes_(codes) {
  const auto channels = static_cast<int64_t>(scale.size());
  const at::Tensor scales = at::from_blob(const_cast<float*>(scale.data()), {channels}, at::kFloat).clone();
  first_scale_ = by_row(scales.to(rounded.device()), rounded);
  const at::Tensor code = (rounded / first_scale_).round().clamp(codes.lowest, codes.highest);
  latent_ = at::minimum(at::maximum(floats / first_scale_, code - kFromCode), code + kFromCode).contiguous();
  free_ = at::maximum(code / codes.lowest, code / codes.highest).lt(1).to(at::kFloat);
  gain_ = at::zeros({per_tensor ? 1 : channels}, latent_.options());
}

at::Tensor MovingCodes::scale() const { return first_scale_ * by_row(gain_.exp(), latent_); }

at::Tensor MovingCodes::weight() const { return scale() * latent_.round(); }

MovingCodes::Gradients MovingCodes::gradients(const at::Tensor& by_weight, const at::Tensor& weight) const {
  const at::Tensor by_gain = (by_weight * weight).flatten(1).sum(1);
  return {(by_weight * scale() * free_).contiguous(), gain_.size(0) == 1 ? by_gain.sum(0, true) : by_gain};
}

void MovingCodes::hold() { latent_.clamp_(codes_.lowest - kWithinCode, codes_.highest + kWithinCode); }

}  // namespace octet
