#include "src/qat/reconstruct/adaround.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <numbers>

#include "src/common/error.h"
#include "src/model/device.h"
#include "src/qat/folded_batch_norm.h"

namespace octet {
namespace {

// h(V) = clamp(sigmoid(V) (kTop - kBottom) + kBottom, 0, 1)
constexpr double kTop = 1.1, kBottom = -0.1;
constexpr double kPush = 1, kFirstPower = 20, kLastPower = 2, kWarmUp = 0.2, kRate = 1e-2;

/// [K] beside a weight of K rows.
at::Tensor by_row(const at::Tensor& of_rows, const at::Tensor& weight) {
  std::vector<int64_t> shape(weight.dim(), 1);
  shape[0] = -1;
  return of_rows.view(shape);
}

at::Tensor tensor_of(const std::vector<float>& values, at::Device device) {
  return at::from_blob(const_cast<float*>(values.data()), {static_cast<int64_t>(values.size())}, at::kFloat)
      .clone()
      .to(device);
}

/// A layer by itself: what it gives for its inputs, before a residual.
class LoneLayer {
 public:
  LoneLayer(const Graph& graph, int layer, const Weights& weights) : weights_(weights) {
    Node input{.name = "input", .op = Op::input, .shape = graph.nodes[graph.nodes[layer].inputs[0]].shape};
    Node node = graph.nodes[layer];
    if (node.inputs.size() > 1) node.activation = Activation::none;
    node.inputs = {0};
    const at::Tensor bias = node.bias ? weights.at(node.name + ".bias").detach() : at::Tensor();
    if (!node.batch_norm.empty())
      folded_ = gain_and_bias(fixed_batch_norm(weights, node, bias));
    else
      folded_.bias = bias;
    graph_.nodes = {input, node};
    graph_.outputs = {1};
  }

  /// [N, values of a picture]
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& weight) const {
    WalkHooks hooks;
    hooks.parameters = [&](int, const LayerParameters&) {
      if (folded_.gain.defined()) return fold_batch_norm({weight, {}}, folded_);
      return LayerParameters{weight, folded_.bias};
    };
    return walk(graph_, weights_, x, {}, hooks);
  }

  int64_t channels() const { return graph_.nodes[1].out_channels; }

 private:
  const Weights& weights_;
  Graph graph_;
  GainAndBias folded_;
};

/// Mean over pictures and pixels, summed over channels.
at::Tensor squared_error(const at::Tensor& y, const at::Tensor& wanted, int64_t channels) {
  return (y - wanted).square().mean() * channels;
}

/// The codes of one weight on their way from floats to integers.
class Rounding {
 public:
  Rounding(const at::Tensor& weight, const at::Tensor& scale, const WeightCodes& codes)
      : scale_(by_row(scale, weight)) {
    const at::Tensor steps = weight / scale_;
    nearest_ = steps.round().clamp(codes.lowest, codes.highest);
    const at::Tensor reach = at::maximum(steps / codes.lowest, steps / codes.highest).flatten(1);
    const at::Tensor largest = reach.eq(reach.amax(1, /*keepdim=*/true)).view_as(weight);
    free_ = steps.ge(codes.lowest).logical_and(steps.lt(codes.highest)).logical_and(largest.logical_not());
    lower_ = at::where(free_, steps.floor(), nearest_);
    const at::Tensor share = ((steps - lower_).clamp(0, 1) - kBottom) / (kTop - kBottom);
    logits_ = (share / (1 - share)).log().detach().requires_grad_(true);
  }

  at::Tensor& logits() { return logits_; }
  at::Tensor up() const { return (logits_.sigmoid() * (kTop - kBottom) + kBottom).clamp(0, 1); }
  at::Tensor weight(const at::Tensor& up) const { return scale_ * at::where(free_, lower_ + up, lower_); }
  at::Tensor push(const at::Tensor& up, double power) const {
    return at::where(free_, 1 - (2 * up - 1).abs().pow(power), at::zeros_like(up)).sum();
  }

  at::Tensor nearest() const { return nearest_; }
  at::Tensor rounded() const { return at::where(free_, lower_ + up().ge(0.5).to(at::kFloat), lower_); }
  at::Tensor values(const at::Tensor& codes) const { return scale_ * codes; }

 private:
  at::Tensor scale_, nearest_, lower_, free_, logits_;
};

class Adam {
 public:
  explicit Adam(at::Tensor values)
      : values_(std::move(values)), mean_(at::zeros_like(values_)), square_(at::zeros_like(values_)) {}
  void step() {
    const c10::NoGradGuard no_grad;
    const at::Tensor gradient = values_.grad();
    ++steps_;
    mean_.mul_(0.9).add_(gradient, 0.1);
    square_.mul_(0.999).addcmul_(gradient, gradient, 0.001);
    const at::Tensor deviation = (square_ / (1 - std::pow(0.999, steps_))).sqrt_().add_(1e-8);
    values_.addcdiv_(mean_, deviation, -kRate / (1 - std::pow(0.9, steps_)));
    values_.mutable_grad().reset();
  }

 private:
  at::Tensor values_, mean_, square_;
  int steps_ = 0;
};

double power_at(double share_done) {
  const double since = (share_done - kWarmUp) / (1 - kWarmUp);
  return kLastPower + (kFirstPower - kLastPower) * 0.5 * (1 + std::cos(since * std::numbers::pi));
}

/// `nearest`: the error of rounding to nearest, in whose units the loss is.
void learn(Rounding& rounding, const LoneLayer& layer, const at::Tensor& x, const at::Tensor& wanted, double nearest,
           const AdaRoundOptions& options) {
  const c10::AutoGradMode with_gradients(true);
  at::Generator random = at::detail::createCPUGenerator(options.seed);
  Adam adam(rounding.logits());
  for (int step = 0; step < options.steps; ++step) {
    const at::Tensor chosen =
        at::randint(x.size(0), {options.batch_size}, random, at::TensorOptions(at::kLong)).to(x.device());
    const at::Tensor up = rounding.up();
    at::Tensor loss = squared_error(layer(x.index_select(0, chosen), rounding.weight(up)),
                                    wanted.index_select(0, chosen), layer.channels()) /
                      nearest;
    const double share_done = static_cast<double>(step) / options.steps;
    if (share_done >= kWarmUp) loss = loss + rounding.push(up, power_at(share_done)) * (kPush / up.numel());
    loss.backward();
    adam.step();
  }
}

/// Pictures in parts, as many at a time as a step takes.
template <class F>
at::Tensor in_parts(const at::Tensor& x, int size, const F& f) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : x.split(size)) parts.push_back(f(part));
  return at::cat(parts);
}

}  // namespace

void adaround(QuantizedModel& model, const at::Tensor& x, const AdaRoundOptions& options,
              const std::function<void(const RoundedLayer&)>& done) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const Prepared& prepared = model.prepared();
  const Graph& graph = prepared.graph;
  Weights floats = model.weights();
  for (auto& [name, tensor] : floats) tensor = tensor.detach().clone();
  const FloatParams scales = model.weight_scales();

  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    const Node& node = graph.nodes[n];
    if (!has_weight(node.op)) continue;
    const int source = node.inputs[0];
    const LoneLayer layer(graph, n, floats);
    const at::Tensor own = floats.at(node.name + ".weight");
    const at::Tensor wanted = in_parts(x, options.batch_size, [&](const at::Tensor& part) {
      at::Tensor input;
      WalkHooks hooks;
      hooks.output = [&](int from, at::Tensor y) {
        if (from == source) input = y;
        return y;
      };
      walk(graph, floats, part, {}, hooks);
      return layer(input, own);
    });
    const at::Tensor inputs = in_parts(x, options.batch_size, [&](const at::Tensor& part) {
      at::Tensor input;
      model.forward(part, {}, [&](int from, const at::Tensor& y) {
        if (from == source) input = y.clone();
      });
      return input;
    });

    Rounding rounding(own, tensor_of(scales.at(node.name), own.device()), prepared.weight_codes(n));
    const auto error_of = [&](const at::Tensor& codes) {
      const at::Tensor y = in_parts(inputs, options.batch_size,
                                    [&](const at::Tensor& part) { return layer(part, rounding.values(codes)); });
      return squared_error(y, wanted, layer.channels()).item<double>();
    };
    RoundedLayer result{.name = node.name, .nearest = error_of(rounding.nearest())};
    if (result.nearest > 0) learn(rounding, layer, inputs, wanted, result.nearest, options);
    at::Tensor codes = rounding.rounded();
    result.rounded = error_of(codes);
    if (!(result.rounded < result.nearest)) {
      codes = rounding.nearest();
      result.rounded = result.nearest;
    }
    result.weights = codes.numel();
    result.moved = codes.ne(rounding.nearest()).sum().item<int64_t>();
    at::Tensor weight = model.weights().at(node.name + ".weight");
    weight.copy_(rounding.values(codes));
    // Scales are of the weights as they are: those on the grid must give the grid again.
    const std::vector<float> again = model.weight_scales().at(node.name);
    if (!(weight / by_row(tensor_of(again, weight.device()), weight)).round().equal(codes))
      throw promise_error("'" + node.name + "': the rounded weights have other scales");
    done(result);
  }
}

}  // namespace octet
