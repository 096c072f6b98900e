// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "src/base/random.h"
#include "src/net/op_traits.h"
#include "src/quant/calibrate.h"
#include "src/quant/convert.h"
#include "src/quant/node_constants.h"
#include "src/quant/plan.h"

namespace octet {
namespace {

/// Draws random parameters such that the mean square of each edge is known in advance: a row of weights w and an input
/// of mean square m give a value of mean square m * |w|^2, of which a ReLU keeps half (He et al. 2015). Rows are scaled
/// to make that kMeanSquare, as a BatchNorm would: a ReLU6 then clips hardly anything.
class RandomParameters {
 public:
  RandomParameters(const Prepared& prepared, uint64_t seed) : prepared_(prepared), random_({seed}) {
    for (size_t n = 0; n < prepared.graph.nodes.size(); ++n) add_node(prepared.graph.nodes[n]);
  }

  FloatParams params, scales;
  std::vector<QParams> edges;

 private:
  void add_node(const Node& node) {
    const size_t n = edges.size();
    if (has_weight(node.op)) add_weights(node);
    if (node.op == Op::lookup && node.groups > 1) {
      for (const char* scale : {".input_scale", ".output_scale"})
        fill(node.name + scale, static_cast<size_t>(node.groups), 0.6, 1.5);
    }
    if (node.op == Op::prelu) fill(node.name + ".weight", static_cast<size_t>(node.groups), 0.05, 0.45);
    mean_square_.push_back(mean_square(node));
    const auto [least, most] = node.op == Op::lookup ? function_range(static_cast<int>(n)) : reach(static_cast<int>(n));
    const double lo = least == 0 ? 0.0 : least * random_.uniform(0.8, 1.2), hi = most * random_.uniform(0.8, 1.2);
    edges.push_back(
        prepared_.root[n] != static_cast<int>(n)
            ? edges[prepared_.root[n]]
            : choose_qparams(static_cast<float>(lo), static_cast<float>(hi), prepared_.range[n], prepared_.affine[n]));
  }

  /// Returns the expected ends of an edge's values: kReach standard deviations of what is before a ReLU, so that a few
  /// saturate.
  std::pair<double, double> reach(int n) const {
    const double before = prepared_.nonnegative[n] ? 2 * mean_square_[n] : mean_square_[n];
    const double most = kReach * std::sqrt(before);
    return {prepared_.nonnegative[n] ? 0.0 : -most, most};
  }

  /// Returns the smallest and the largest value of a lookup's function over the range of its input.
  std::pair<double, double> function_range(int n) const {
    const Node& node = prepared_.graph.nodes[n];
    const auto [lo, hi] = reach(node.inputs[0]);
    double least = 0, most = 0;
    for (int i = 0; i <= kSteps; ++i) {
      const double y = evaluate(node.function, lo + (hi - lo) * i / kSteps);
      least = std::min(least, y), most = std::max(most, y);
    }
    return {prepared_.nonnegative[n] ? 0.0 : least, most};
  }

  /// Returns the mean square of a lookup's function over a normally distributed input (the nonnegative half of it where
  /// the input cannot be negative) with the input's mean square.
  double function_mean_square(const Node& node) const {
    const int x = node.inputs[0];
    const double deviation = std::sqrt(mean_square_[x]);
    double sum = 0, weights = 0;
    for (int i = prepared_.nonnegative[x] ? 0 : -kSteps; i <= kSteps; ++i) {
      const double z = 4.0 * i / kSteps, weight = std::exp(-z * z / 2), y = evaluate(node.function, z * deviation);
      sum += weight * y * y, weights += weight;
    }
    return kept(node, sum / weights, prepared_.nonnegative[x] || never_negative(node.function.kind));
  }

  /// Returns what the node's activation leaves of a mean square: half for values of either sign, all of nonnegative
  /// ones.
  double kept(const Node& node, double term, bool nonnegative) const {
    return activates(node) && !nonnegative ? term / 2 : term;
  }

  double kept_input(const Node& node, size_t i) const {
    return kept(node, mean_square_[node.inputs[i]], prepared_.nonnegative[node.inputs[i]]);
  }

  double mean_square(const Node& node) const {
    switch (node.op) {
      case Op::input:
        return kInputMeanSquare;
      case Op::conv2d:
      case Op::linear:
        return kept(node, kMeanSquare, false) + (node.inputs.size() > 1 ? kept_input(node, 1) : 0.0);
      case Op::add:
        return kept_input(node, 0) + kept_input(node, 1);
      case Op::global_avg_pool:  // the square of the mean of a rectified normal value is 1/pi of its mean square
        return kept_input(node, 0) * std::numbers::inv_pi;
      case Op::mul: {
        const int a = node.inputs[0], b = node.inputs[1];
        return kept(node, mean_square_[a] * mean_square_[b], prepared_.nonnegative[a] && prepared_.nonnegative[b]);
      }
      case Op::matmul: {
        const int a = node.inputs[0], b = node.inputs[1];
        const double terms = static_cast<double>(prepared_.graph.nodes[a].shape.c) / node.groups;
        const double sum = terms * mean_square_[a] * mean_square_[b] * node.scale * node.scale;
        return kept(node, sum, prepared_.nonnegative[a] && prepared_.nonnegative[b]);
      }
      case Op::softmax: {  // for a normal input: the mean of exp(2 x) over the square of the mean of exp(x)
        const double channels = static_cast<double>(node.shape.c) / node.groups;
        return std::min(1.0, std::exp(mean_square_[node.inputs[0]]) / (channels * channels));
      }
      case Op::concat: {
        double sum = 0;
        for (size_t i = 0; i < node.inputs.size(); ++i) {
          sum += kept_input(node, i) * prepared_.graph.nodes[node.inputs[i]].shape.c;
        }
        return sum / node.shape.c;
      }
      case Op::lookup:
        return function_mean_square(node);
      default:
        return kept_input(node, 0);
    }
  }

  /// Draws the codes of weights uniformly, and gives each row the scale that makes its norm right.
  void add_weights(const Node& node) {
    const int n = static_cast<int>(edges.size());
    const WeightRows rows = weight_rows(prepared_.graph, n);
    const long row = rows.inputs * rows.taps;
    const WeightCodes codes = prepared_.weight_codes(n);
    const auto count_of_codes = static_cast<uint32_t>(codes.highest - codes.lowest + 1);
    const double norm_square = kMeanSquare / mean_square_[node.inputs[0]];
    const size_t channels = static_cast<size_t>(node.out_channels);
    std::vector<float>& weight = params[node.name + ".weight"];
    std::vector<float>& scale = scales[node.name];
    weight.reserve(channels * row);
    for (size_t k = 0; k < channels; ++k) {
      double squares = 0;
      for (long i = 0; i < row; ++i) {
        int code = codes.lowest + static_cast<int>(random_.below(count_of_codes));
        const long place = i / rows.taps + i % rows.taps + static_cast<long>(k);  // varies where a row has its zeros
        if (prepared_.sparse[n] && place % 4 >= 2) code = 0;
        squares += static_cast<double>(code) * code;
        weight.push_back(static_cast<float>(code));
      }
      scale.push_back(static_cast<float>(std::sqrt(norm_square / std::max(squares, 1.0))));
      for (long i = 0; i < row; ++i) weight[k * row + i] *= scale[k];
    }
    if (node.bias) fill(node.name + ".bias", channels, -kOffset, kOffset);
    if (node.batch_norm.empty()) return;
    fill(node.batch_norm + ".weight", channels, 0.8, 1.2);
    fill(node.batch_norm + ".bias", channels, -kOffset, kOffset);
    fill(node.batch_norm + ".running_mean", channels, 0.0, 0.0);
    fill(node.batch_norm + ".running_var", channels, 1.0, 1.0);
  }

  void fill(const std::string& name, size_t count, double lo, double hi) {
    std::vector<float>& values = params[name];
    for (size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(random_.uniform(lo, hi)));
  }

  static constexpr double kReach = 3.2;
  static constexpr int kSteps = 100;                     ///< of sums over a lookup's function
  static constexpr double kMeanSquare = 4.0;             ///< of the sums that a convolution computes
  static constexpr double kOffset = 0.5;                 ///< largest bias
  static constexpr double kInputMeanSquare = 4.0 / 3.0;  ///< pixels uniform in [-2, 2] after preprocessing

  const Prepared& prepared_;
  Random random_;
  std::vector<double> mean_square_;
};

}  // namespace

Int8Graph random_int8_graph(const Graph& graph, const QuantSpec& spec, uint64_t seed) {
  const Prepared prepared = prepare(fuse(graph), spec);
  const RandomParameters random(prepared, seed);
  Preprocessing preprocessing;
  const size_t channels = static_cast<size_t>(prepared.graph.nodes.front().shape.c);
  preprocessing.mean.assign(channels, 0.5f);
  preprocessing.std.assign(channels, 0.25f);
  return convert(prepared, random.params, random.edges, random.scales, preprocessing, {});
}

}  // namespace octet
