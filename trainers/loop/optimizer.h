// SPDX-License-Identifier: Apache-2.0
// How weights change after the gradients are known: SGD or AdamW, the moving average, and the schedules of learning
// rates and losses. All state is kept as named tensors, so that a state file holds all of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/net/graph.h"
#include "src/recipe/recipe.h"
#include "src/train/model/model.h"
#include "src/train/qat/quantized_model.h"

namespace octet {

using NamedTensors = std::map<std::string, at::Tensor>;

/// Whether weight decay applies: to weights of convolutions and linears, not to BatchNorm, biases and quantizers.
bool decays(ParameterSpec::Kind kind);

/// Updates the trainable parameters of a graph and learned scales in place. Formulas (PyTorch's documentation of SGD
/// and AdamW, dampening 0, eps 1e-8), g the gradient, wd 0 for parameters that do not decay:
///   sgd    g += wd * p;  m = momentum * m + g;  p -= lr * (nesterov ? g + momentum * m : m)
///   adamw  p *= 1 - lr * wd;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
///          p -= lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)               (Loshchilov & Hutter 2019)
/// Learned parameters of quantizers have a learning rate of their own and do not decay. Scales ("...scale") stay
/// positive: a step changes one by a tenth of it at most. Under adamw, whose steps are as long as the rate whatever the
/// gradient, a scale learns as its logarithm does (g s in place of g, a step changes it by that share): a rate suits
/// scales of any size.
class Optimizer {
 public:
  /// Allocates the state in each parameter's own memory format.
  Optimizer(const OptimizerRecipe& recipe, const Graph& graph, const Weights& weights, const Weights& scales = {});

  /// Learning rates as scalars on the parameters' device, float64 on the CPU, float32 on a GPU.
  struct Rates {
    at::Tensor weights, scales;
  };
  /// Makes one step; changes nothing if `skip`, a float scalar on the device, is 1. The host does not wait.
  void step(const Rates& learning_rates, const at::Tensor& skip);

  /// Returns the scales, then the other parameters in the order of the forward pass. Read from the back this is the
  /// order in which the backward pass finishes gradients; those of the scales, shared by all layers, come last.
  std::vector<at::Tensor> parameters() const;
  std::vector<at::Tensor> gradients() const;  ///< the defined ones
  void zero_gradients();                      ///< frees them

  /// Returns "momentum.<parameter>" of SGD, or "mean.<parameter>", "square.<parameter>" and "step" of AdamW. These are
  /// the tensors themselves: copy into them to restore.
  NamedTensors state() const;

 private:
  enum class Group { decaying, other, scales, offsets };
  struct Parameter {
    std::string name;
    at::Tensor value, first, second;  // momentum or mean; square (AdamW only)
    Group group;
  };
  void add(const std::string& name, const at::Tensor& value, Group group);
  void step_group(Group group, const at::Tensor& learning_rate, const at::Tensor& skip);

  OptimizerRecipe recipe_;
  bool adamw_;
  std::vector<Parameter> parameters_;
  at::Tensor steps_;  // AdamW: number of updates, a float scalar
};

/// Exponential moving average of weights and BatchNorm buffers.
class WeightAverage {
 public:
  /// Starts from a copy of the weights. 0 < decay < 1.
  WeightAverage(const Weights& weights, double decay, double ramp = 0);

  /// Returns 1 - d with d = min(decay, (1 + t) / (10 + t)) at update t = 0, 1, ..., or with a ramp d = decay (1 -
  /// exp(-(t + 1) / ramp)): the first updates follow the weights quickly instead of keeping the initial ones. Worked:
  /// decay 0.9, t = 0: d = 0.1, rate 0.9.
  double rate(long t) const;

  /// average += rate * (weights - average). rate: a scalar tensor on the weights' device. Worked: rate 0.9, average 1,
  /// weights 2: 1.9.
  void update(const at::Tensor& rate);

  const Weights& average() const { return average_; }  ///< the tensors themselves: copy into them to restore

  void apply();  ///< copies the averages into the weights, for good

  /// Calls `body` while the weights hold the averages, in the same storage, so that every model that shares the weights
  /// sees them. This is no guard object: restoring may throw on a failed GPU, which a destructor must not.
  void while_in_place(const std::function<void()>& body);

 private:
  void exchange();

  Weights weights_, average_;  // weights_ shares the trainer's tensors
  double decay_, ramp_;
};

/// Returns the number of full batches in an epoch; images beyond them are not trained on in that epoch. Throws
/// Error(usage) if there is not even one full batch.
long steps_per_epoch(const OptimizerRecipe& recipe, size_t images, const std::string& phase);

/// Returns the seed of a step's random numbers: SplitMix64 over the four arguments, so it does not depend on the steps
/// that ran before in this process.
uint64_t step_seed(uint64_t seed, const std::string& phase, int epoch, long step);

/// The course of the learning rate, counted in optimizer steps.
struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  double peak = 0.1;             ///< the recipe's learning_rate
  long steps = 1;                ///< of the whole phase, >= 1
  long warmup = 0;               ///< < steps
  std::vector<long> milestones;  ///< the rate is multiplied by gamma at each of these steps
  double gamma = 0.1;
  long last = 0;  ///< kind yolox: steps at the end, in which the rate stays
};

/// Converts the recipe's schedule from epochs to steps. Throws Error(usage) for a warm-up that is longer than the
/// phase. last_epochs: data.mosaic_off, the end of schedule yolox; a phase of no more epochs has no such end.
Schedule make_schedule(const OptimizerRecipe& recipe, long steps_per_epoch, int last_epochs = 0);

/// Returns the learning rate of step s in [0, steps). During warm-up, for s < warmup: peak * (s + 1) / warmup. Then
///   constant   peak
///   step       peak * gamma^(number of milestones <= s)
///   cosine     peak / 2 * (1 + cos(pi * (s - warmup) / (steps - warmup)))           (Loshchilov & Hutter 2017, eq. 5)
///   yolox      (Ge et al. 2021) during warm-up peak * (s / warmup)^2; then with low = peak / 20 and m = steps - last
///              low + (peak - low) / 2 * (1 + cos(pi * (s - warmup) / (m - warmup))), and low for s >= m
///   one_cycle  linear from peak / 25 up to peak over the warm-up (30 % of the steps when the recipe has none), then
///              linear down to 0 at `steps` (after Smith 2018, "A disciplined approach", section 4.2, with constant
///              momentum)
/// Worked: cosine, peak 0.1, 110 steps, 10 of warm-up: s=0 0.01; s=9 0.1; s=10 0.1; s=60 0.05; s=109 2.467e-05.
double learning_rate(const Schedule& schedule, long step);

}  // namespace octet
