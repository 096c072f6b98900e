// SPDX-License-Identifier: Apache-2.0
#include "tests/quant/random_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "src/quant/plan.h"

namespace octet::test {
namespace {

/// Grows a Graph node by node; `shape` is that of the last one.
class Grower {
 public:
  explicit Grower(uint64_t seed) : random_(seed) {
    graph_.name = "random";
    Node input;
    input.name = "input";
    input.shape = {between(1, 20), between(5, 18), between(5, 18)};
    graph_.nodes.push_back(input);
  }

  int between(int low, int high) { return low + static_cast<int>(random_() % static_cast<uint64_t>(high - low + 1)); }
  bool chance(int percent) { return between(0, 99) < percent; }
  const Shape& shape() const { return graph_.nodes.back().shape; }
  int last() const { return static_cast<int>(graph_.nodes.size()) - 1; }

  void push(
      Op op, const std::function<void(Node&)>& change = [](Node&) {}) {
    Node node;
    node.op = op;
    node.name = "n" + std::to_string(graph_.nodes.size());
    node.inputs = {last()};
    change(node);
    graph_.nodes.push_back(node);
    graph_.outputs.clear();
    infer_shapes(graph_);
  }

  void convolution() {
    const int c = shape().c;
    push(Op::conv2d, [&](Node& n) {
      n.window = window(3);
      n.window.dilation_h = n.window.kernel_h * 2 <= shape().h ? between(1, 2) : 1;
      n.window.dilation_w = n.window.kernel_w * 2 <= shape().w ? between(1, 2) : 1;
      n.groups = chance(30) ? c : chance(40) && c % 2 == 0 ? 2 : 1;
      n.out_channels = n.groups * between(n.groups == 1 ? 2 : 1, std::max(1, 24 / n.groups));  // one would be dead
      n.bias = chance(50);
    });
    if (chance(60)) push(Op::batch_norm, [&](Node& n) { n.epsilon = chance(30) ? 0.125 : kBatchNormEpsilon; });
    if (chance(60)) push(chance(50) ? Op::relu : Op::relu6);
  }

  void function() {
    if (chance(30)) {
      const int c = shape().c;
      push(Op::prelu, [&](Node& n) { n.groups = chance(60) ? c : std::gcd(c, between(1, 3)); });
    } else {
      push(Op::lookup, [&](Node& n) {
        n.function = {kFunctions[between(0, kFunctions.size() - 1)].value, 0.1f};
        if (graph_.nodes.size() % 5 < 2) n.groups = shape().c;
      });
    }
    if (chance(20)) push(chance(50) ? Op::relu : Op::relu6);  // which the table takes in
  }

  /// Squeeze-and-excite without its convolutions: a factor for each channel; or one for each value.
  void excite() {
    const int from = last();
    if (chance(70)) push(Op::global_avg_pool);
    push(Op::lookup,
         [&](Node& n) { n.function.kind = chance(50) ? FunctionKind::sigmoid : FunctionKind::hard_sigmoid; });
    const int gate = last();
    push(Op::mul, [&](Node& n) { n.inputs = {from, gate}; });
  }

  /// A branch that comes back: convolution of the same shape, or an activation, and the sum or concat of both.
  void branch() {
    const int from = last();
    const int c = shape().c;
    if (chance(60)) {
      push(Op::conv2d, [&](Node& n) {
        n.window.kernel_h = 3;
        n.window.pad = even_padding(1, 0);
        n.out_channels = c;
        n.bias = true;
      });
    } else {
      push(chance(50) ? Op::relu : Op::relu6);
    }
    const bool order = chance(50);
    const int to = last();
    push(chance(60) ? Op::add : Op::concat, [&](Node& n) {
      n.inputs = order ? std::vector<int>{from, to} : std::vector<int>{to, from};
    });
  }

  /// Some of the channels or all in another order, each pixel several times, several pixels of one or between them.
  void pick() {
    const Shape in = shape();
    switch (between(0, 4)) {
      case 0:
        return push(Op::slice, [&](Node& n) {
          n.out_channels = between(1, in.c);
          n.first_channel = between(0, in.c - n.out_channels);
        });
      case 1:
        return push(Op::channel_shuffle, [&](Node& n) { n.groups = std::gcd(in.c, between(2, 6)); });
      case 2:
        return push(Op::depth_to_space, [&](Node& n) { n.factor_h = std::gcd(in.c, 2), n.factor_w = 1; });
      case 3:
        push(Op::resize_bilinear, [&](Node& n) { n.factor_h = between(1, 3), n.factor_w = between(1, 3); });
        if (chance(30)) push(chance(50) ? Op::relu : Op::relu6);
        return;
      default:
        return push(Op::resize, [&](Node& n) { n.factor_h = between(1, 2), n.factor_w = between(1, 2); });
    }
  }

  /// Every pixel a mixture of all, by what they have in common.
  void attend() {
    if (shape().h * shape().w > 60) return pool();
    const int from = last(), heads = std::gcd(shape().c, between(1, 3));
    const float scale = chance(50) ? 1.0f : 0.35f;
    push(Op::matmul, [&](Node& n) { n.inputs = {from, from}, n.groups = heads, n.transposed = true, n.scale = scale; });
    if (chance(20)) push(chance(50) ? Op::relu : Op::relu6);
    push(Op::softmax, [&](Node& n) { n.groups = heads; });
    const int shares = last();
    push(Op::matmul, [&](Node& n) { n.inputs = {shares, from}, n.groups = heads; });
  }

  void pool() {
    push(chance(50) ? Op::max_pool : Op::avg_pool, [&](Node& n) { n.window = window(3); });
  }

  /// Returns whether other nodes may read node n: not a convolution whose BatchNorm follows.
  bool is_open(int n) const { return n == last() || graph_.nodes[n + 1].op != Op::batch_norm; }

  void head(int from) {
    const Op ops[] = {Op::conv2d, Op::avg_pool,        Op::concat, Op::add,   Op::mul,
                      Op::relu,   Op::global_avg_pool, Op::slice,  Op::lookup};
    const Op op = ops[between(0, std::size(ops) - 1)];
    const Shape in = graph_.nodes[from].shape;
    if (op == Op::mul) push(Op::global_avg_pool, [&](Node& n) { n.inputs = {from}; });
    const int gate = last();
    push(op, [&](Node& n) {
      n.inputs.assign(op == Op::concat || op == Op::add ? 2 : 1, from);
      if (op == Op::mul) n.inputs.push_back(gate);
      if (op == Op::conv2d) n.out_channels = between(1, 8), n.bias = true;
      if (op == Op::lookup) n.function.kind = FunctionKind::sigmoid;
      if (op == Op::slice) n.out_channels = 1, n.first_channel = in.c - 1;
      if (op == Op::avg_pool) n.window = {.kernel_h = std::min(2, in.h), .kernel_w = std::min(2, in.w)};
    });
  }

  Graph finish(bool classifier) {
    const int trunk = last();
    push_classifier();
    std::vector<int> outputs = {last()};
    for (int more = classifier ? 0 : between(0, 2); more > 0; --more) {
      int from = between(1, trunk);
      while (!is_open(from)) from = from == trunk ? 1 : from + 1;
      if (chance(50)) {
        head(from);
        from = last();
      }
      if (std::find(outputs.begin(), outputs.end(), from) == outputs.end()) outputs.push_back(from);
    }
    graph_.outputs = outputs;
    infer_shapes(graph_);
    return graph_;
  }

 private:
  void push_classifier() {
    if (chance(50)) push(Op::global_avg_pool);
    push(Op::flatten);
    push(Op::linear, [&](Node& n) {
      n.out_channels = 10;
      n.bias = true;
    });
  }

  Window window(int largest) {
    Window w;
    w.kernel_h = between(1, std::min(largest, shape().h));
    w.kernel_w = between(1, std::min(largest, shape().w));
    w.stride_h = between(1, 2);
    w.stride_w = between(1, 2);
    w.pad = even_padding(between(0, w.kernel_h / 2), between(0, w.kernel_w / 2));
    if (chance(30)) w.pad.bottom = between(0, w.kernel_h / 2), w.pad.right = between(0, w.kernel_w / 2);
    return w;
  }

  std::mt19937_64 random_;
  Graph graph_;
};

}  // namespace

Graph random_graph(uint64_t seed, int branches, bool classifier) {
  Grower grower(seed);
  grower.convolution();
  for (int i = grower.between(1, 4); i > 0; --i) {
    if (branches > 0 && grower.chance(branches)) {
      grower.branch();
      continue;
    }
    const int kind = grower.between(0, 14);
    if (kind < 5)
      grower.convolution();
    else if (kind < 7)
      grower.branch();
    else if (kind < 9)
      grower.pool();
    else if (kind == 10)
      grower.function();
    else if (kind == 11)
      grower.excite();
    else if (kind > 13)
      grower.attend();
    else if (kind > 11)
      grower.pick();
    else
      grower.push(Op::subsample_pad, [&](Node& n) {
        n.window.stride_h = n.window.stride_w = 2;
        n.out_channels = grower.shape().c + 4;
      });
  }
  return grower.finish(classifier);
}

QuantSpec random_quant(const Graph& graph, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int count) { return static_cast<int>(random() % static_cast<uint64_t>(count)); };
  const auto bits = [&] { return below(3) == 0 ? 8 : 2 + below(7); };
  QuantSpec spec;
  spec.activation = static_cast<ActivationScheme>(below(3));
  spec.weight_granularity = static_cast<Granularity>(below(2));
  spec.weight_range = static_cast<WeightRange>(below(2));
  spec.activation_bits = bits(), spec.weight_bits = bits();
  spec.input_bits = bits(), spec.first_layer_bits = bits(), spec.last_layer_bits = bits();
  const int wider = std::min(8, spec.activation_bits + 1 + below(6)), any = 2 + below(7), kind = below(8);
  spec.residual_bits = kind == 0 ? 0 : kind == 1 ? any : wider;
  const Graph fused = fuse(graph);
  const std::vector<int> roots = edge_roots(fused);
  const std::vector<bool> floats = float_outputs(fused);
  for (int i = below(4); i > 0; --i) {
    const int n = below(static_cast<int>(fused.nodes.size()) - 1);
    const bool weighted = has_weight(fused.nodes[n].op) && below(2) == 0;
    if (roots[n] == n && !floats[n]) spec.layers.push_back({fused.nodes[n].name, weighted ? bits() : 0, bits()});
  }
  return spec;
}

}  // namespace octet::test
