// Weights that oscillate between two codes are frozen to their mean code (Nagel et al., arXiv 2203.11086): what is kept
// of each weight for that, and the work after each step of the optimizer.
#pragma once

#include <vector>

#include "kernels/fake_quantize/oscillation.h"
#include "src/qat/quantized_model.h"
#include "trainers/loop/optimizer.h"

namespace octet {

/// Weights that turn back in more than so large a share of the steps are frozen; 0: none are.
struct FreezingThreshold {
  double first = 0, last = 0;

  bool freezes() const { return last > 0; }
  /// Of step s of `steps`: last + (first - last) / 2 * (1 + cos(pi s / steps)).
  double at(long step, long steps) const;
};

class OscillationFreezer {
 public:
  /// Of weights that have scales of their own (QuantizedModel::weight_scale_tensor()); begins with their codes. The
  /// tensors must stay where they are.
  explicit OscillationFreezer(const QuantizedModel& model);

  /// After the optimizer's step. Scalars where the weights are; `skip` 1: nothing changes. Launches only.
  void step(const at::Tensor& threshold, const at::Tensor& skip);

  /// By "<layer>.code", ".direction" int8, ".frequency", ".mean" float, of the weight's shape and layout
  /// (oscillation.h). The tensors themselves: copy into them to restore.
  NamedTensors state() const;

  /// Share of the weights that are frozen. Waits for the GPU.
  double frozen() const;

 private:
  struct Layer {
    std::string name;
    at::Tensor weight, scale, code, direction, frequency, mean;
    WeightCodes codes;
  };
  kernels::OscillatingWeights pointers(const Layer& layer) const;

  std::vector<Layer> layers_;
};

}  // namespace octet
