// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/learned_codes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <utility>

#include "src/base/error.h"
#include "src/train/model/device.h"
#include "src/train/model/step_graph.h"

namespace octet {
namespace {

/// Returns the squared error, mean over images and pixels, summed over channels.
at::Tensor squared_error(const at::Tensor& y, const at::Tensor& wanted, int channels) {
  return at::mse_loss(y, wanted) * channels;
}

/// The inputs of a unit for all images, in the quantized and in the float network.
struct Inputs {
  at::Tensor quantized, floats;
};

at::Tensor with_gradients(const Piece& piece, const Inputs& x, const at::Tensor& images,
                          const std::vector<at::Tensor>& weights, const Drop& drop) {
  for (const at::Tensor& weight : weights) weight.requires_grad_(true);
  const at::Tensor quantized = x.quantized.index_select(0, images);
  const c10::AutoGradMode on(true);
  if (!drop.any()) return piece.quantized(quantized, weights);
  return piece.dropping(drop(quantized, x.floats.index_select(0, images)), weights, drop);
}

/// Learns `rounding` with a loss relative to `nearest`, the error of rounding to nearest. Only the network's gradients
/// are autograd's: in a small layer a step takes as long as its launches.
void learn(Rounding& rounding, const Piece& piece, const Inputs& x, const at::Tensor& wanted, double nearest,
           const StepPlan& plan, const std::function<void()>& each_step) {
  const at::Device device = wanted.device();
  Steps steps(plan, wanted.size(0), device);
  Adam adam({rounding.logits()});
  const at::Tensor rate = learning_rate(plan.rate, device);
  const TensorFloat32 products(plan.tf32);
  const Drop drop(plan.drop, plan.seed, device);  // outlives what is recorded with it
  StepGraph graph(/*capture=*/device.is_cuda());
  for (int step = 0; step < plan.steps; ++step) {
    each_step();
    steps.prepare(step);
    graph.run(0, [&] {
      const Steps::Row row = steps.next();
      const Rounding::Soft soft = rounding.softly_rounded();
      const std::vector<at::Tensor> weights = rounding.weights(soft.codes);
      const at::Tensor y = with_gradients(piece, x, row.images, weights, drop);
      const double unit = nearest * static_cast<double>(y.numel()) / piece.channels;
      const at::Tensor by_y = (y.detach() - wanted.index_select(0, row.images)).mul_(2 / unit);
      adam.step({rounding.gradient(soft, torch::autograd::grad({y}, weights, {by_y}), row.power, row.push)}, rate);
    });
  }
}

/// Returns f(x), computed for `size` images at a time. On a GPU it is NCHW in memory: LibTorch's depthwise convolutions
/// of float32 would copy any other layout in each step.
template <class F>
at::Tensor in_parts(const at::Tensor& x, int size, const F& f) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : x.split(size)) parts.push_back(f(part));
  const at::Tensor all = at::cat(parts);
  return x.is_cuda() ? all.contiguous() : all;
}

/// The output of node `node` for all images, in the float and in the quantized network.
struct Reached {
  at::Tensor in_floats, quantized;
  int node = 0;
};

class Reconstruction {
 public:
  Reconstruction(QuantizedModel& model, const at::Tensor& x, const StepPlan& plan)
      : model_(model), plan_(plan), floats_(copies_of(model.weights())), scales_(model.weight_scales()) {
    reached_ = {walked(x, {0, 0}, false), walked(x, {0, 0}, true), 0};
  }

  Reconstructed run(const RoundingUnit& unit, const Piece& piece, const std::function<void()>& each_step) {
    reached_ = {to(unit.part.first, false), to(unit.part.first, true), unit.part.first};
    const at::Tensor inputs = to(piece.source, true), in_floats = to(piece.source, false);
    const at::Tensor wanted = in_parts(in_floats, plan_.batch_size, piece.wanted);
    const auto error_of = [&](const std::vector<at::Tensor>& weights) {
      const at::Tensor y =
          in_parts(inputs, plan_.batch_size, [&](const at::Tensor& x) { return piece.quantized(x, weights); });
      return squared_error(y, wanted, piece.channels).item<double>();
    };
    std::vector<FloatWeight> weights;
    for (const int n : unit.layers) weights.push_back(float_weight(n));
    Rounding rounding(weights);
    Reconstructed result{.name = node(unit.layers.back()).name,
                         .nearest = error_of(rounding.weights(rounding.nearest()))};
    if (result.nearest > 0) learn(rounding, piece, {inputs, in_floats}, wanted, result.nearest, plan_, each_step);
    at::Tensor codes = rounding.rounded();
    result.rounded = error_of(rounding.weights(codes));
    if (!(result.rounded < result.nearest)) {
      codes = rounding.nearest();
      result.rounded = result.nearest;
    }
    result.weights = codes.numel();
    result.moved = codes.ne(rounding.nearest()).sum().item<int64_t>();
    const std::vector<at::Tensor> rounded = rounding.weights(codes);
    for (size_t i = 0; i < rounded.size(); ++i)
      model_.weights().at(node(unit.layers[i]).name + ".weight").copy_(rounded[i]);
    return result;
  }

  /// Throws Error(promise) if the rounded weights have other scales, and so another grid.
  void require_same_grid() const {
    const FloatParams again = model_.weight_scales();
    for (const auto& [name, before] : scales_) {
      const at::Tensor& weight = model_.weights().at(name + ".weight");
      const auto codes = [&](const std::vector<float>& scale) {
        return (weight / by_row(at::tensor(scale).to(weight.device()), weight)).round();
      };
      if (!codes(again.at(name)).equal(codes(before)))
        throw promise_error("'" + name + "': the rounded weights have other scales");
    }
  }

  const Weights& floats() const { return floats_; }

 private:
  const Node& node(int n) const { return model_.prepared().graph.nodes[n]; }

  FloatWeight float_weight(int n) const {
    const at::Tensor& weight = floats_.at(node(n).name + ".weight");
    return {weight, at::tensor(scales_.at(node(n).name)).to(weight.device()), model_.prepared().weight_codes(n)};
  }

  at::Tensor walked(const at::Tensor& x, const GraphPart& part, bool quantized) {
    const WalkHooks hooks = quantized ? model_.quantizing_hooks({}) : WalkHooks();
    return in_parts(x, plan_.batch_size, [&](const at::Tensor& images) {
      return walk_part(model_.prepared().graph, quantized ? model_.weights() : floats_, part, images, {}, hooks);
    });
  }

  /// Returns the output of node n, at or after reached_.node. (An input that is quantized already does not change.)
  at::Tensor to(int n, bool quantized) {
    const at::Tensor& x = quantized ? reached_.quantized : reached_.in_floats;
    return n == reached_.node ? x : walked(x, {reached_.node, n}, quantized);
  }

  QuantizedModel& model_;
  const StepPlan& plan_;
  const Weights floats_;
  const FloatParams scales_;
  Reached reached_;
};

}  // namespace

void reconstruct(QuantizedModel& model, const at::Tensor& x, bool blocks, const StepPlan& plan,
                 const std::function<void(const Reconstructed&)>& done, const std::function<void()>& step) {
  if (plan.drop > 0 && !blocks) throw promise_error("quantization is dropped in blocks only");
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const SameConvolutions same;
  Reconstruction reconstruction(model, x, plan);
  const Graph& graph = model.prepared().graph;
  for (const RoundingUnit& unit : rounding_units(graph, blocks)) {
    const Piece piece = blocks ? block(model, unit, reconstruction.floats())
                               : lone_layer(graph, unit.layers[0], reconstruction.floats());
    done(reconstruction.run(unit, piece, step));
  }
  reconstruction.require_same_grid();
}

std::vector<RoundingUnit> rounding_units(const Graph& graph, bool blocks) {
  if (blocks && graph.outputs.size() != 1)
    throw usage_error(
        fmt::format("calibrate.rounding: a block's error is seen where it ends, and this network ends in "
                    "{} outputs; take adaround",
                    graph.outputs.size()));
  std::vector<int> ends = cut_points(graph);
  ends.push_back(blocks ? graph.outputs.front() : static_cast<int>(graph.nodes.size()) - 1);
  std::vector<RoundingUnit> units;
  int first = 0;
  for (const int last : ends) {
    RoundingUnit unit{.part = {first, last}, .layers = {}};
    for (int n = first + 1; n <= last; ++n) {
      if (!has_weight(graph.nodes[n].op)) continue;
      unit.layers.push_back(n);
      if (!blocks) units.push_back({unit.part, {n}});
    }
    if (blocks && !unit.layers.empty()) units.push_back(std::move(unit));
    first = last;
  }
  return units;
}

Piece lone_layer(const Graph& graph, int layer, const Weights& floats) {
  const int source = graph.nodes[layer].inputs[0];
  Node input{.name = "input", .op = Op::input, .shape = graph.nodes[source].shape}, node = graph.nodes[layer];
  if (node.inputs.size() > 1) node.activation = Activation::none;
  node.inputs = {0};
  auto alone = std::make_shared<Graph>();
  alone->nodes = {input, node};
  alone->outputs = {1};
  const auto quantized = [alone, &floats, folded = FoldedLayer(node, floats)](const at::Tensor& x,
                                                                              const std::vector<at::Tensor>& weights) {
    WalkHooks hooks;
    hooks.parameters = [&](int, const LayerParameters&) { return folded.with(weights[0]); };
    return walk(*alone, floats, x, {}, hooks);
  };
  const auto wanted = [quantized, own = floats.at(node.name + ".weight")](const at::Tensor& x) {
    return quantized(x, {own});
  };
  return {.source = source, .quantized = quantized, .wanted = wanted, .channels = node.shape.c};
}

Piece block(QuantizedModel& model, const RoundingUnit& unit, const Weights& floats) {
  const Graph& graph = model.prepared().graph;
  const GraphPart part = unit.part;
  std::vector<int> place(graph.nodes.size(), -1);  // among the unit's weights
  std::vector<FoldedLayer> folded;
  for (const int n : unit.layers) {
    place[n] = static_cast<int>(folded.size());
    folded.emplace_back(graph.nodes[n], floats);
  }
  const auto layers = [place, folded](const std::vector<at::Tensor>& weights) {
    WalkHooks hooks;
    hooks.parameters = [&](int n, const LayerParameters&) { return folded[place[n]].with(weights[place[n]]); };
    return hooks;
  };
  const WalkHooks deployed = model.quantizing_hooks({});
  const auto quantized = [&graph, &floats, part, layers, deployed](const at::Tensor& x,
                                                                   const std::vector<at::Tensor>& weights) {
    WalkHooks hooks = layers(weights);
    if (deployed.finish) {
      hooks.finish = [&](int n, const Unfinished& y) {
        return n == part.last ? finished(y, graph.nodes[n].activation) : deployed.finish(n, y);
      };
    }
    hooks.output = [&](int n, at::Tensor y) { return n == part.last ? y : deployed.output(n, std::move(y)); };
    return walk_part(graph, floats, part, x, {}, hooks);
  };
  // On a GPU `finish` quantizes, and activating again changes nothing; on the CPU `output` quantizes.
  const auto dropping = [&model, &graph, &floats, part, layers, deployed](
                            const at::Tensor& x, const std::vector<at::Tensor>& weights, const Drop& drop) {
    WalkHooks hooks = layers(weights);
    hooks.output = [&](int n, at::Tensor y) {
      if (n == part.first || n == part.last || !model.prepared().has_edge(n)) return y;
      const at::Tensor plain = y;
      return drop(deployed.output(n, deployed.finish ? deployed.finish(n, {.value = plain}) : plain), plain);
    };
    return walk_part(graph, floats, part, x, {}, hooks);
  };
  const auto wanted = [&graph, &floats, part](const at::Tensor& x) { return walk_part(graph, floats, part, x, {}); };
  return {.source = part.first,
          .quantized = quantized,
          .wanted = wanted,
          .dropping = dropping,
          .channels = graph.nodes[part.last].shape.c};
}

}  // namespace octet
