// SPDX-License-Identifier: Apache-2.0
// BatchNorm in training over all shares of a batch: by LibTorch's operators on the CPU, by octet's kernels on a GPU.
// The formulas are those of Ioffe and Szegedy 2015 (arXiv 1502.03167). Each share sends mean and variance about its own
// mean, which are then combined (Chan, Golub and LeVeque 1979), so that no large squares are summed. BatchNorm with
// fixed statistics, as part of its layer, is here, too.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/var_mean.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/train/model/model.h"
#if OCTET_CUDA
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>

#include "kernels/training/batch_norm.h"
#include "src/train/model/device.h"
#include "src/train/model/operators.h"
#endif

namespace octet {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const std::vector<int64_t> kAllButChannels = {0, 2, 3};

struct Numbers {
  double momentum = 0, epsilon = 0;
};

struct Normalized {
  at::Tensor y;
  at::Tensor kept;  ///< float [2, C], for the backward pass: mean, and 1 / sqrt(variance + epsilon)
};

struct Gradients {
  at::Tensor x;             ///< of the whole batch's loss
  at::Tensor weight, bias;  ///< this share's part
};

Error too_few_values() {
  return promise_error(
      "BatchNorm needs more than one value of a channel; take a larger batch_size or, with parallel.stages, fewer "
      "parallel.micro_batches");
}

/// Returns the number of a channel's values in `shares` shares as large as x. Throws too_few_values() for one or none,
/// which have no variance.
double count_in(const at::Tensor& x, int64_t shares) {
  const auto count = static_cast<double>(shares * (x.numel() / x.size(1)));
  if (count < 2) throw too_few_values();
  return count;
}

at::Tensor by_channel(const at::Tensor& values) { return values.view({1, -1, 1, 1}); }

Normalized normalize(const at::Tensor& x, const BatchNormTensors& t, const Numbers& numbers,
                     const GatherShares& gather) {
  const auto [variance, mean] = at::var_mean(x.to(at::kFloat), kAllButChannels, /*correction=*/0);
  const at::Tensor all = gather(at::stack({mean, variance}));
  const at::Tensor means = all.select(1, 0), mean_of_all = means.mean(0);
  const at::Tensor variance_of_all = (all.select(1, 1) + (means - mean_of_all).square()).mean(0);
  const double count = count_in(x, all.size(0));
  t.running_mean.mul_(1 - numbers.momentum).add_(mean_of_all, numbers.momentum);
  t.running_var.mul_(1 - numbers.momentum).add_(variance_of_all, numbers.momentum * count / (count - 1));
  const at::Tensor factor = (variance_of_all + numbers.epsilon).rsqrt(), gain = t.weight * factor;
  return {(x.to(at::kFloat) * by_channel(gain) + by_channel(t.bias - mean_of_all * gain)).to(x.scalar_type()),
          at::stack({mean_of_all, factor})};
}

Gradients gradients(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& kept,
                    const GatherShares& gather) {
  const at::Tensor mean = kept[0], factor = kept[1];
  const at::Tensor gradient = dy.to(at::kFloat), centred = x.to(at::kFloat) - by_channel(mean);
  const at::Tensor of_gradient = gradient.sum(kAllButChannels);
  const at::Tensor of_product = (gradient * centred).sum(kAllButChannels);
  const at::Tensor all = gather(at::stack({of_gradient, of_product}));
  const at::Tensor means = all.sum(0) / count_in(x, all.size(0));
  const at::Tensor d_x = (gradient - by_channel(means[0]) - centred * by_channel(means[1] * factor.square())) *
                         by_channel(weight * factor);
  return {d_x.to(x.scalar_type()), of_product * factor, of_gradient};
}

#if OCTET_CUDA
/// Returns x as the kernels take it: rows of channels.
at::Tensor in_rows(const at::Tensor& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); }

/// Two sums a channel: those of this share, and the parts that the kernel's blocks add up first.
struct Sums {
  explicit Sums(const at::Tensor& x) : parts(batch_norm_parts(x)), mine(at::empty({2, x.size(1)}, parts.options())) {}
  at::Tensor parts, mine;
};

float* pointer(const at::Tensor& tensor) { return tensor.mutable_data_ptr<float>(); }

Normalized cuda_normalize(const at::Tensor& input, const BatchNormTensors& t, const Numbers& numbers,
                          const GatherShares& gather) {
  const at::Tensor x = in_rows(input);
  if (x.numel() == 0) throw too_few_values();  // the kernels divide rows among blocks
  const c10::DeviceGuard guard(x.device());
  const CudaStream stream = current_stream(x.device());
  const kernels::BatchNormShare share = batch_norm_share(x);
  const Sums moments(x);
  kernels::cuda_batch_norm_moments(share, pointer(moments.parts), pointer(moments.mine), stream);
  const at::Tensor all = gather(moments.mine);
  count_in(x, all.size(0));
  const Normalized result{at::empty_like(x), at::empty_like(moments.mine)};
  kernels::cuda_batch_norm_normalize(share,
                                     {.moments = all.const_data_ptr<float>(),
                                      .shares = static_cast<int>(all.size(0)),
                                      .weight = t.weight.const_data_ptr<float>(),
                                      .bias = t.bias.const_data_ptr<float>(),
                                      .running_mean = pointer(t.running_mean),
                                      .running_var = pointer(t.running_var),
                                      .momentum = static_cast<float>(numbers.momentum),
                                      .epsilon = static_cast<float>(numbers.epsilon),
                                      .kept = pointer(result.kept),
                                      .y = result.y.mutable_data_ptr()},
                                     stream);
  return result;
}

Gradients cuda_gradients(const at::Tensor& of_output, const at::Tensor& input, const at::Tensor& weight,
                         const at::Tensor& kept, const GatherShares& gather) {
  const at::Tensor x = in_rows(input), dy = in_rows(of_output.to(x.scalar_type()));
  const c10::DeviceGuard guard(x.device());
  const CudaStream stream = current_stream(x.device());
  const kernels::BatchNormShare share = batch_norm_share(x);
  const kernels::BatchNormBackward backward{
      .dy = dy.const_data_ptr(), .kept = kept.const_data_ptr<float>(), .weight = weight.const_data_ptr<float>()};
  const Sums sums(x);
  const Gradients result{at::empty_like(x), at::empty_like(weight), at::empty_like(weight)};
  kernels::cuda_batch_norm_gradient_sums(share, backward, pointer(sums.parts), pointer(sums.mine),
                                         pointer(result.weight), pointer(result.bias), stream);
  const at::Tensor all = gather(sums.mine);
  kernels::cuda_batch_norm_gradient(share, backward, all.const_data_ptr<float>(), static_cast<int>(all.size(0)),
                                    result.x.mutable_data_ptr(), stream);
  return result;
}
#else
constexpr auto cuda_normalize = normalize;
constexpr auto cuda_gradients = gradients;
#endif

struct Holder : torch::CustomClassHolder {
  explicit Holder(const GatherShares& gather_) : gather(gather_) {}
  const GatherShares gather;
};

struct SharedBatchNorm : torch::autograd::Function<SharedBatchNorm> {
  /// `weight` and `bias` are those of `tensors`, passed so that autograd sees them.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            const BatchNormTensors& tensors, const Numbers& numbers, const GatherShares& gather) {
    const BatchNormTensors all{weight, bias, tensors.running_mean, tensors.running_var};
    const Normalized result = (x.is_cuda() ? cuda_normalize : normalize)(x, all, numbers, gather);
    ctx->save_for_backward({x, weight, result.kept});
    ctx->saved_data["gather"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(gather));
    return result.y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& of_output) {
    const variable_list saved = ctx->get_saved_variables();
    const GatherShares& gather =
        c10::static_intrusive_pointer_cast<Holder>(ctx->saved_data["gather"].toCapsule())->gather;
    const Gradients d =
        (saved[0].is_cuda() ? cuda_gradients : gradients)(of_output[0], saved[0], saved[1], saved[2], gather);
    return {d.x, d.weight, d.bias, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

BatchNormTensors batch_norm_tensors(const Weights& weights, const std::string& name) {
  return {weights.at(name + ".weight"), weights.at(name + ".bias"), weights.at(name + ".running_mean"),
          weights.at(name + ".running_var")};
}

at::Tensor shared_batch_norm(const at::Tensor& x, const BatchNormTensors& tensors, double momentum, double epsilon,
                             const GatherShares& gather) {
  return SharedBatchNorm::apply(x, tensors.weight, tensors.bias, tensors, Numbers{momentum, epsilon}, gather);
}

namespace {

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

at::Tensor centre(const FixedBatchNorm& b) {
  return b.offset.defined() ? b.tensors.running_mean - b.offset : b.tensors.running_mean;
}

}  // namespace

FixedBatchNorm fixed_batch_norm(const Weights& weights, const Node& node, const at::Tensor& offset) {
  return {batch_norm_tensors(weights, node.batch_norm), offset, node.epsilon};
}

GainAndBias gain_and_bias(const FixedBatchNorm& b) {
  const at::Tensor gain = b.tensors.weight / (b.tensors.running_var + b.epsilon).sqrt();
  return {gain, b.tensors.bias - centre(b) * gain};
}

std::vector<GainAndBias> gains_and_biases(const std::vector<FixedBatchNorm>& batch_norms) {
  if (batch_norms.empty()) return {};
  variable_list gammas, betas, centres, variances;
  std::vector<at::Scalar> epsilons;
  for (const FixedBatchNorm& b : batch_norms) {
    gammas.push_back(b.tensors.weight);
    betas.push_back(b.tensors.bias);
    centres.push_back(centre(b));
    variances.push_back(b.tensors.running_var);
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
