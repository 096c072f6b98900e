#include "trainers/loop/precision.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/core.h>

namespace octet {
namespace {

constexpr double kGrowth = 2.0, kBackoff = 0.5;
constexpr double kClipEps = 1e-6;

}  // namespace

std::string qat_precision_note(Precision precision) {
  if (precision == Precision::fp32) return "";
  const bool bf16 = precision == Precision::bf16;
  return fmt::format(
      "qat: precision {} rounds what convolutions give before it is quantized: {} of an edge's values get another code "
      "than fp32, and the exported network, give them; {}",
      bf16 ? "bf16" : "fp16", bf16 ? "3 to 20 %" : "0.3 to 3 %",
      bf16 ? "fp16 (GPU) or fp32 trains nearer to what is deployed" : "fp32 has none of that");
}

std::string cpu_precision_note(const std::string& phase, Precision precision) {
  if (precision != Precision::fp16) return "";
  return fmt::format(
      "{}: precision fp16 on a CPU: ResNet-20 trained 13 times slower so than in fp32 (27 and 354 images/s, AMD EPYC); "
      "--set {}.precision=fp32 is faster, and so is bf16 where the CPU has AVX512-BF16",
      phase, phase);
}

GradScaler::GradScaler(at::Device device, float initial_scale, long growth_interval)
    : scale_(at::full({}, initial_scale, at::TensorOptions(device).dtype(at::kFloat))),
      growth_(at::zeros({}, at::TensorOptions(device).dtype(at::kInt))),
      growth_interval_(growth_interval) {}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return loss * scale_; }

at::Tensor GradScaler::unscale(const std::vector<at::Tensor>& gradients) const {
  c10::NoGradGuard no_grad;
  at::Tensor found_inf = at::zeros({}, scale_.options());
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, scale_.reciprocal());
  return found_inf;
}

void GradScaler::update(const at::Tensor& found_inf) {
  c10::NoGradGuard no_grad;
  at::_amp_update_scale_(scale_, growth_, found_inf, kGrowth, kBackoff, growth_interval_);
}

at::Tensor joint_norm(const std::vector<at::Tensor>& gradients) {
  const c10::NoGradGuard no_grad;
  return at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients)));
}

void clip_gradients(const std::vector<at::Tensor>& gradients, double max_norm, const at::Tensor& norm) {
  const c10::NoGradGuard no_grad;
  at::_foreach_mul_(gradients, (max_norm / (norm + kClipEps)).clamp_max(1.0));
}

at::Tensor clip_gradients(const std::vector<at::Tensor>& gradients, double max_norm) {
  const at::Tensor norm = joint_norm(gradients);
  clip_gradients(gradients, max_norm, norm);
  return norm;
}

}  // namespace octet
