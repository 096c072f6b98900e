// SPDX-License-Identifier: Apache-2.0
#include "src/train/model/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <torch/csrc/autograd/custom_function.h>

#include <iterator>
#include <utility>

namespace octet {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

variable_list part(const variable_list& all, size_t index, size_t size) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(index * size);
  return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}

void append(variable_list& all, const variable_list& more) { all.insert(all.end(), more.begin(), more.end()); }

/// Takes lists of tensors: LibTorch's functions of lists need one launch for many tensors, but their own gradients do
/// not.
struct GainsAndBiases : torch::autograd::Function<GainsAndBiases> {
  /// Returns all gains, then all biases. `centres` are mean - offset.
  static variable_list forward(AutogradContext* ctx, const at::TensorList& gammas, const at::TensorList& betas,
                               const at::TensorList& centres, const at::TensorList& variances,
                               const std::vector<at::Scalar>& epsilons) {
    variable_list deviations = at::_foreach_add(variances, epsilons);
    at::_foreach_sqrt_(deviations);
    const variable_list gains = at::_foreach_div(gammas, deviations);
    const variable_list biases = at::_foreach_sub(betas, at::_foreach_mul(centres, gains));
    variable_list result = gains, saved = std::move(deviations);
    append(result, biases);
    append(saved, centres.vec());
    append(saved, gains);
    ctx->save_for_backward(saved);
    return result;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const size_t count = gradients.size() / 2;
    const variable_list deviations = part(saved, 0, count), centres = part(saved, 1, count);
    const variable_list of_biases = part(gradients, 1, count);
    variable_list of_gammas = at::_foreach_sub(part(gradients, 0, count), at::_foreach_mul(of_biases, centres));
    at::_foreach_div_(of_gammas, deviations);
    variable_list of_centres = at::_foreach_mul(of_biases, part(saved, 2, count));
    at::_foreach_neg_(of_centres);
    variable_list result = std::move(of_gammas);
    append(result, of_biases);
    append(result, of_centres);
    result.resize(4 * count + 1);  // variances, epsilons
    return result;
  }
};

at::Tensor centre(const FixedBatchNorm& b) { return b.offset.defined() ? b.mean - b.offset : b.mean; }

}  // namespace

FixedBatchNorm fixed_batch_norm(const Weights& weights, const Node& node, const at::Tensor& offset) {
  const std::string& name = node.batch_norm;
  return {weights.at(name + ".weight"),
          weights.at(name + ".bias"),
          weights.at(name + ".running_mean"),
          weights.at(name + ".running_var"),
          offset,
          node.epsilon};
}

GainAndBias gain_and_bias(const FixedBatchNorm& b) {
  const at::Tensor gain = b.gamma / (b.variance + b.epsilon).sqrt();
  return {gain, b.beta - centre(b) * gain};
}

std::vector<GainAndBias> gains_and_biases(const std::vector<FixedBatchNorm>& batch_norms) {
  if (batch_norms.empty()) return {};
  variable_list gammas, betas, centres, variances;
  std::vector<at::Scalar> epsilons;
  for (const FixedBatchNorm& b : batch_norms) {
    gammas.push_back(b.gamma);
    betas.push_back(b.beta);
    centres.push_back(centre(b));
    variances.push_back(b.variance);
    epsilons.emplace_back(b.epsilon);
  }
  const variable_list all = GainsAndBiases::apply(at::TensorList(gammas), at::TensorList(betas),
                                                  at::TensorList(centres), at::TensorList(variances), epsilons);
  std::vector<GainAndBias> result;
  for (size_t i = 0; i < batch_norms.size(); ++i) result.push_back({all[i], all[batch_norms.size() + i]});
  return result;
}

LayerParameters fold_batch_norm(const LayerParameters& layer, const GainAndBias& folded) {
  std::vector<int64_t> by_channel(layer.weight.dim(), 1);
  by_channel[0] = -1;
  return {layer.weight * folded.gain.view(by_channel), folded.bias, /*batch_norm_folded=*/true};
}

FoldedLayer::FoldedLayer(const Node& node, const Weights& weights) {
  const at::Tensor bias = node.bias ? weights.at(node.name + ".bias") : at::Tensor();
  if (!node.batch_norm.empty())
    folded_ = gain_and_bias(fixed_batch_norm(weights, node, bias));
  else
    folded_.bias = bias;
}

LayerParameters FoldedLayer::with(const at::Tensor& weight) const {
  if (folded_.gain.defined()) return fold_batch_norm({weight, {}}, folded_);
  return {weight, folded_.bias};
}

}  // namespace octet
