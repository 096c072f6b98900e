#include "src/qat/correct_biases.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include "src/common/error.h"
#include "src/model/device.h"

namespace octet {
namespace {

/// Of each channel, with the bias; double [K].
at::Tensor mean_of(const Unfinished& y) {
  const at::Tensor mean = y.value.mean({0, 2, 3}, false, at::kDouble);
  return y.bias.defined() ? mean + y.bias : mean;
}

}  // namespace

void correct_biases(QuantizedModel& model, const std::vector<ChannelMoments>& wanted, const at::Tensor& x) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  require_biases(model.prepared().graph);
  const std::vector<Node>& nodes = model.prepared().graph.nodes;
  model.forward_changing(x, [&](int n, Unfinished& y) {
    if (!has_weight(nodes[n].op)) return;
    std::vector<double> means = wanted[n].mean;
    const at::Tensor target = at::from_blob(means.data(), {static_cast<int64_t>(means.size())}, at::kDouble);
    const at::Tensor error = (target.to(y.value.device()) - mean_of(y)).to(at::kFloat);
    if (!error.isfinite().all().item<bool>())
      throw promise_error("'" + nodes[n].name + "': bias correction met NaN or infinity");
    y.bias = y.bias.defined() ? y.bias + error : error;  // which may be the parameter itself
    const at::Tensor parameter = model.weights().at(bias_name(nodes[n]));
    parameter.add_(error);
  });
}

std::vector<ChannelMoments> quantized_means(QuantizedModel& model, const at::Tensor& x) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const std::vector<Node>& nodes = model.prepared().graph.nodes;
  std::vector<ChannelMoments> result(nodes.size());
  model.forward_changing(x, [&](int n, Unfinished& y) {
    if (!has_weight(nodes[n].op)) return;
    const at::Tensor mean = to_host(mean_of(y));
    result[n].mean.assign(mean.const_data_ptr<double>(), mean.const_data_ptr<double>() + mean.numel());
  });
  return result;
}

}  // namespace octet
