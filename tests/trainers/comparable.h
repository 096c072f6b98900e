// SPDX-License-Identifier: Apache-2.0
// The tiny network as several ranks train it beside one process.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <string>

#include "tests/trainers/training.h"

namespace octet::testing_trainers {

/// In which walk, and with which scales, one process and two are compared.
struct Kind {
  bool qat = false;
  bool live_batch_norm = false;  ///< synchronized; else BatchNorm is that of evaluation
  EdgeScales scales = EdgeScales::fixed;
};

/// What one process and two can agree in: without dropout, ranges calibrated.
struct Comparable : Training {
  Comparable(const OptimizerRecipe& recipe, const std::string& checkpoint, const Kind& kind)
      : Training(recipe, checkpoint,
                 Variant{.name = "", .qat = kind.qat, .learn = learn(kind.scales), .edges = kind.scales}, at::kCPU) {
    graph = fuse(tiny_graph());
    recipe_.sync_batch_norm = kind.live_batch_norm;
    phase.freeze_batch_norm = kind.live_batch_norm ? 1 : 0;
    if (!kind.qat) return;
    phase.freeze_observers = kind.scales == EdgeScales::observed ? 1 : 0;
    const c10::NoGradGuard no_grad;
    at::manual_seed(3);
    quantized->forward(at::rand({32, 1, 8, 8}) * 4 - 1, {.observe = true, .quantize = false});
    quantized->calibrate(CalibrationMethod::minmax, 99.99);
  }
};

/// |a - b| / |a| in L2, of the tensor where it is largest. A bias before live BatchNorm has no gradient but rounding:
/// it, and its gradient, are held to be that small in both.
inline double distance(const Weights& a, const Weights& b) {
  constexpr double kRounding = 1e-6;
  double largest = 0;
  for (const auto& [name, tensor] : a) {
    const double size = tensor.norm().item<double>(), apart = (tensor - b.at(name)).norm().item<double>();
    if (size < kRounding && apart < kRounding) continue;
    largest = std::max(largest, apart / size);
  }
  return largest;
}

}  // namespace octet::testing_trainers
