#include "src/qat/reconstruct/adaround.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include "src/model/device.h"
#include "src/model/walk_part.h"
#include "src/qat/folded_batch_norm.h"
#include "src/qat/reconstruct/rounding.h"

namespace octet {
namespace {

using namespace reconstruct;

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

  /// [N, C, H, W]
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& weight) const {
    WalkHooks hooks;
    hooks.parameters = [&](int, const LayerParameters&) {
      if (folded_.gain.defined()) return fold_batch_norm({weight, {}}, folded_);
      return LayerParameters{weight, folded_.bias};
    };
    return walk_part(graph_, weights_, {.first = 0, .last = 1}, x, {}, hooks);
  }

 private:
  const Weights& weights_;
  Graph graph_;
  GainAndBias folded_;
};

/// `nearest`: the error of rounding to nearest, in whose units the loss is.
void learn(Rounding& rounding, const LoneLayer& layer, const at::Tensor& x, const at::Tensor& wanted, double nearest,
           const AdaRoundOptions& options) {
  const c10::AutoGradMode with_gradients(true);
  at::Generator random = at::detail::createCPUGenerator(options.seed);
  Adam adam(rounding.logits());
  for (int step = 0; step < options.steps; ++step) {
    const at::Tensor some = chosen(x, options.batch_size, random), up = rounding.up();
    at::Tensor loss =
        squared_error(layer(x.index_select(0, some), rounding.weight(up)), wanted.index_select(0, some)) / nearest;
    const Push push = push_at(static_cast<double>(step) / options.steps, up.numel());
    if (push.factor > 0) loss = loss + rounding.push(up, push.power) * push.factor;
    loss.backward();
    adam.step();
  }
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

    Rounding rounding(own, tensor_of(scales.at(node.name), own), prepared.weight_codes(n));
    const auto error_of = [&](const at::Tensor& codes) {
      const at::Tensor y = in_parts(inputs, options.batch_size,
                                    [&](const at::Tensor& part) { return layer(part, rounding.values(codes)); });
      return squared_error(y, wanted).item<double>();
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
    result.moved = rounding.moved(codes);
    put_codes(model, node, rounding, codes);
    done(result);
  }
}

}  // namespace octet
