// SGD and AdamW with their state as plain named tensors, so that a checkpoint holds all of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "src/graph/graph.h"
#include "src/model/model.h"
#include "src/recipe/recipe.h"

namespace octet {

using NamedTensors = std::map<std::string, at::Tensor>;

/// Only weights of convolutions and linears decay: BatchNorm, biases and quantizer parameters do not.
bool decays(ParameterSpec::Kind kind);

/// Updates the trainable parameters of a graph, and scales that learn, in place. Formulas (PyTorch's documentation of
/// SGD and AdamW, dampening 0, eps 1e-8), g the gradient, wd 0 for parameters that do not decay:
///   sgd    g += wd * p;  m = momentum * m + g;  p -= lr * (nesterov ? g + momentum * m : m)
///   adamw  p *= 1 - lr * wd;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
///          p -= lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)               (Loshchilov & Hutter 2019)
/// What learns of quantizers has a learning rate of its own. Scales and clipping levels ("...scale", "...alpha") stay
/// positive: a step at most halves one. Clipping levels decay by a rate of their own; scales and offsets do not.
class Optimizer {
 public:
  /// Allocates the state in each parameter's own memory format. Throws Error(usage) for an unknown recipe.optimizer.
  Optimizer(const OptimizerRecipe& recipe, const Graph& graph, const Weights& weights, const Weights& scales = {},
            double alpha_decay = 0);

  /// Scalars on the parameters' device, float64 on the CPU, float32 on a GPU.
  struct Rates {
    at::Tensor weights, scales;
  };
  /// One step. `skip` (float scalar tensor there) 1: nothing changes. The host waits for none of them.
  void step(const Rates& learning_rates, const at::Tensor& skip);

  /// Scales, then the others in the order of the forward pass: from the back to the front as a backward pass is done
  /// with them, for the scales hang together over all layers.
  std::vector<at::Tensor> parameters() const;
  std::vector<at::Tensor> gradients() const;  ///< the defined ones
  void zero_gradients();                      ///< frees them

  /// "momentum.<parameter>"; or "mean.<parameter>", "square.<parameter>", "step". The tensors themselves: copy into
  /// them to restore.
  NamedTensors state() const;

 private:
  enum class Group { decaying, other, scales, alphas, offsets };
  struct Parameter {
    std::string name;
    at::Tensor value, first, second;  // momentum or mean; square (AdamW only)
    Group group;
  };
  void add(const std::string& name, const at::Tensor& value, Group group);
  void step_group(Group group, const at::Tensor& learning_rate, const at::Tensor& skip);
  double decay_of(Group group) const;

  OptimizerRecipe recipe_;
  double alpha_decay_;
  bool adamw_;
  std::vector<Parameter> parameters_;
  at::Tensor steps_;  // AdamW: number of updates, a float scalar
};

}  // namespace octet
