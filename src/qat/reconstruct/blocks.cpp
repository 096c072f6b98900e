#include "src/qat/reconstruct/blocks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

#include <map>
#include <optional>
#include <utility>

#include "src/model/device.h"
#include "src/qat/fake_quantize.h"
#include "src/qat/folded_batch_norm.h"
#include "src/qat/reconstruct/rounding.h"

namespace octet {
namespace {

using namespace reconstruct;

/// Weights by node: those of a block as they are to be used.
using BlockWeights = std::map<int, at::Tensor>;

/// Leaves values unquantized, some of them.
struct Dropping {
  double probability;
  at::Generator& random;

  at::Tensor mixed(const at::Tensor& plain, const at::Tensor& quantized) const {
    const at::Tensor draw = at::rand(plain.sizes(), random, at::TensorOptions(at::kFloat)).to(plain.device());
    return at::where(draw.lt(probability), plain, quantized);
  }
};

/// A block of the quantized network by itself.
class Block {
 public:
  Block(const Prepared& prepared, const GraphPart& part, const Weights& floats, const std::vector<QParams>& edges)
      : prepared_(prepared), part_(part), floats_(floats), edges_(edges) {}

  /// The float network's.
  at::Tensor wanted(const at::Tensor& x) const { return walk_part(prepared_.graph, floats_, part_, x, {}); }

  /// With those weights; `dropping` null: everything but the output is quantized.
  at::Tensor operator()(const at::Tensor& x, const BlockWeights& weights, const Dropping* dropping = nullptr) const {
    WalkHooks hooks;
    hooks.parameters = [&](int n, const LayerParameters& own) {
      const Node& node = prepared_.graph.nodes[n];
      const LayerParameters layer{weights.at(n), own.bias};
      if (node.batch_norm.empty()) return layer;
      return fold_batch_norm(layer, gain_and_bias(fixed_batch_norm(floats_, node, own.bias)));
    };
    hooks.output = [&](int n, at::Tensor y) {
      if (n == part_.last || !prepared_.has_edge(n)) return y;
      at::Tensor quantized = fake_quantize(y, edges_[n]);
      return dropping != nullptr ? dropping->mixed(y, quantized) : quantized;
    };
    return walk_part(prepared_.graph, floats_, part_, x, {}, hooks);
  }

  /// f(node) for each that has weights.
  template <class F>
  void for_layers(const F& f) const {
    for (int n = part_.first + 1; n <= part_.last; ++n)
      if (has_weight(prepared_.graph.nodes[n].op)) f(n);
  }

 private:
  const Prepared& prepared_;
  const GraphPart part_;
  const Weights& floats_;
  const std::vector<QParams>& edges_;
};

using Roundings = std::map<int, Rounding>;  // by node

/// What reaches a block, and what it should give, of all pictures.
struct Values {
  at::Tensor plain, quantized, wanted;
};

/// `nearest`: the error of rounding to nearest, in whose units the loss is.
void learn(Roundings& roundings, const Block& block, const Values& values, double nearest,
           const BlockOptions& options) {
  const c10::AutoGradMode with_gradients(true);
  at::Generator random = at::detail::createCPUGenerator(options.seed);
  const Dropping dropping{options.drop, random};
  std::vector<Adam> adams;
  int64_t weights = 0;
  for (auto& [node, rounding] : roundings) {
    adams.emplace_back(rounding.logits());
    weights += rounding.logits().numel();
  }
  for (int step = 0; step < options.steps; ++step) {
    const at::Tensor some = chosen(values.quantized, options.batch_size, random);
    const auto of_some = [&](const at::Tensor& all) { return all.index_select(0, some); };
    const Push push = push_at(static_cast<double>(step) / options.steps, weights);
    BlockWeights soft;
    at::Tensor pushes;
    for (auto& [node, rounding] : roundings) {
      const at::Tensor up = rounding.up();
      soft.emplace(node, rounding.weight(up));
      if (push.factor == 0) continue;
      const at::Tensor own = rounding.push(up, push.power);
      pushes = pushes.defined() ? pushes + own : own;
    }
    const at::Tensor x = dropping.mixed(of_some(values.plain), of_some(values.quantized));
    at::Tensor loss = squared_error(block(x, soft, &dropping), of_some(values.wanted)) / nearest;
    if (pushes.defined()) loss = loss + pushes * push.factor;
    loss.backward();
    for (Adam& adam : adams) adam.step();
  }
}

}  // namespace

std::vector<GraphPart> blocks_of(const Graph& graph) {
  std::vector<int> ends = cut_points(graph);
  ends.push_back(graph.outputs.front());
  std::vector<GraphPart> blocks;
  int first = 0;
  for (const int last : ends) {
    bool weighted = false;
    for (int n = first + 1; n <= last; ++n) weighted = weighted || has_weight(graph.nodes[n].op);
    if (!weighted) continue;  // pools and the like go to the block behind them
    blocks.push_back({.first = first, .last = last});
    first = last;
  }
  return blocks;
}

void reconstruct_blocks(QuantizedModel& model, const at::Tensor& x, const BlockOptions& options,
                        const std::function<void(const RoundedLayer&)>& done) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const Prepared& prepared = model.prepared();
  const Graph& graph = prepared.graph;
  Weights floats = model.weights();
  for (auto& [name, tensor] : floats) tensor = tensor.detach().clone();
  const FloatParams scales = model.weight_scales();
  const std::vector<QParams> edges = model.edges();

  Values values{.plain = x, .quantized = x, .wanted = {}};
  for (const GraphPart& part : blocks_of(graph)) {
    const Block block(prepared, part, floats, edges);
    values.wanted = in_parts(values.plain, options.batch_size, [&](const at::Tensor& p) { return block.wanted(p); });
    Roundings roundings;
    block.for_layers([&](int n) {
      const at::Tensor& own = floats.at(graph.nodes[n].name + ".weight");
      roundings.emplace(n, Rounding(own, tensor_of(scales.at(graph.nodes[n].name), own), prepared.weight_codes(n)));
    });

    const auto error_of = [&](const BlockWeights& codes) {
      BlockWeights weights;
      for (const auto& [n, of_node] : codes) weights.emplace(n, roundings.at(n).values(of_node));
      const at::Tensor y =
          in_parts(values.quantized, options.batch_size, [&](const at::Tensor& p) { return block(p, weights); });
      return squared_error(y, values.wanted).item<double>();
    };
    BlockWeights nearest, codes;
    for (const auto& [n, rounding] : roundings) nearest.emplace(n, rounding.nearest());
    RoundedLayer result{.name = graph.nodes[part.last].name, .nearest = error_of(nearest)};
    if (result.nearest > 0) learn(roundings, block, values, result.nearest, options);
    for (const auto& [n, rounding] : roundings) codes.emplace(n, rounding.rounded());
    result.rounded = error_of(codes);
    if (!(result.rounded < result.nearest)) {
      codes = nearest;
      result.rounded = result.nearest;
    }
    for (const auto& [n, of_node] : codes) {
      result.weights += of_node.numel();
      result.moved += roundings.at(n).moved(of_node);
      put_codes(model, graph.nodes[n], roundings.at(n), of_node);
    }
    const WalkHooks hooks = model.quantizing_hooks({});
    values.quantized = in_parts(values.quantized, options.batch_size, [&](const at::Tensor& p) {
      return walk_part(graph, model.weights(), part, p, {}, hooks);
    });
    values.plain = values.wanted;
    done(result);
  }
}

}  // namespace octet
