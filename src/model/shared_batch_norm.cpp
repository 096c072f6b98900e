// The formulas are those of Ioffe and Szegedy 2015 (arXiv 1502.03167), with sums over all shares. Each share sends mean
// and variance about its own mean, which are then combined (Chan, Golub and LeVeque 1979): no sum of large squares.
#include "src/model/shared_batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/var_mean.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "src/model/batch_norm_passes.h"

namespace octet {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const std::vector<int64_t> kAllButChannels = {0, 2, 3};

at::Tensor by_channel(const at::Tensor& values) { return values.view({1, -1, 1, 1}); }

NormalizedBatch normalize(const at::Tensor& x, const BatchNormTensors& t, const BatchNormNumbers& numbers,
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

BatchNormGradients gradients(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& kept, const GatherShares& gather) {
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

struct Holder : torch::CustomClassHolder {
  explicit Holder(const GatherShares& gather_) : gather(gather_) {}
  const GatherShares gather;
};

struct SharedBatchNorm : torch::autograd::Function<SharedBatchNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            const BatchNormTensors& tensors, const BatchNormNumbers& numbers,
                            const GatherShares& gather) {
    const BatchNormTensors all{weight, bias, tensors.running_mean, tensors.running_var};
#if OCTET_CUDA
    const auto pass = x.is_cuda() ? cuda_batch_norm : normalize;
#else
    const auto pass = normalize;
#endif
    const NormalizedBatch result = pass(x, all, numbers, gather);
    ctx->save_for_backward({x, weight, result.kept});
    ctx->saved_data["gather"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(gather));
    return result.y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& of_output) {
    const variable_list saved = ctx->get_saved_variables();
    const GatherShares& gather =
        c10::static_intrusive_pointer_cast<Holder>(ctx->saved_data["gather"].toCapsule())->gather;
#if OCTET_CUDA
    const auto pass = saved[0].is_cuda() ? cuda_batch_norm_backward : gradients;
#else
    const auto pass = gradients;
#endif
    const BatchNormGradients d = pass(of_output[0], saved[0], saved[1], saved[2], gather);
    return {d.x, d.weight, d.bias, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

Error too_few_values() {
  return promise_error(
      "BatchNorm needs more than one value of a channel; take a larger batch_size or, with parallel.stages, fewer "
      "parallel.micro_batches");
}

double count_in(const at::Tensor& x, int64_t shares) {
  const auto count = static_cast<double>(shares * (x.numel() / x.size(1)));
  if (count < 2) throw too_few_values();
  return count;
}

at::Tensor shared_batch_norm(const at::Tensor& x, const BatchNormTensors& tensors, double momentum, double epsilon,
                             const GatherShares& gather) {
  return SharedBatchNorm::apply(x, tensors.weight, tensors.bias, tensors, BatchNormNumbers{momentum, epsilon}, gather);
}

}  // namespace octet
