// What gradients need in mixed precision: a scaler for fp16, and clipping. LibTorch has the building blocks in C++, not
// the class (pytorch#44710). And what a type costs QAT.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "src/model/autocast.h"

namespace octet {

/// What QAT in that type trains that is not deployed; "" for fp32. tests/qat/low_precision_test.cpp has the figures.
std::string qat_precision_note(Precision precision);
/// What fp16 costs on a CPU, and the cure; "" for others. `phase`: "train" or "qat", as the recipe names it.
std::string cpu_precision_note(const std::string& phase, Precision precision);

/// Dynamic loss scaling (Micikevicius et al. 2018): the scale grows by 2 after `growth_interval` good steps in a row
/// and halves after a step with an infinite or NaN gradient, which is skipped. Everything stays on the device.
class GradScaler {
 public:
  explicit GradScaler(at::Device device, float initial_scale = 65536.0f, long growth_interval = 2000);

  at::Tensor scale(const at::Tensor& loss) const;
  /// Divides the gradients by the scale in place; returns 1 (float scalar) if one of them is not finite, else 0.
  at::Tensor unscale(const std::vector<at::Tensor>& gradients) const;
  void update(const at::Tensor& found_inf);

  /// "scale" (float) and "growth" (int32) scalars. The tensors themselves: copy into them to restore.
  std::map<std::string, at::Tensor> state() const { return {{"scale", scale_}, {"growth", growth_}}; }

 private:
  at::Tensor scale_, growth_;
  long growth_interval_;
};

/// Scales the gradients so that their joint L2 norm is at most max_norm: by max_norm / (norm + 1e-6) if that is below 1
/// (Pascanu et al. 2013). Returns the norm before. Worked: (3, 4) with max_norm 1 becomes (0.6, 0.8), returns 5.
at::Tensor clip_gradients(const std::vector<at::Tensor>& gradients, double max_norm);
at::Tensor joint_norm(const std::vector<at::Tensor>& gradients);  ///< L2, a float scalar
/// The same where `norm` is also of gradients that other processes have.
void clip_gradients(const std::vector<at::Tensor>& gradients, double max_norm, const at::Tensor& norm);

}  // namespace octet
