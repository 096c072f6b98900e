// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/output_error.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "src/train/model/numerics.h"

namespace octet {
namespace {

/// Sums by image, double [N].
at::Tensor by_image(const at::Tensor& x) { return x.flatten(1).sum(1, false, at::kDouble); }

/// An output of one batch as [N, C, pixels].
at::Tensor by_channel(const at::Tensor& y) { return y.reshape({y.size(0), y.size(1), -1}); }

/// Returns the outputs of a network with the nodes of `quantized` quantized.
std::vector<at::Tensor> outputs(QuantizedModel& model, const at::Tensor& x, const std::vector<bool>& quantized) {
  const std::vector<int>& of = model.prepared().graph.outputs;
  std::vector<at::Tensor> result(of.size());
  model.forward_partly(x, quantized, [&](int node, const at::Tensor& y) {
    for (size_t o = 0; o < of.size(); ++o)
      if (of[o] == node) result[o] = y.detach().clone();
  });
  return result;
}

/// A range that an edge may get instead of its own.
struct Alternative {
  int node;
  RangeMethod ranges;
  QParams qparams;
  double ratio;  ///< of the scales, at least 1
};

}  // namespace

double signal_to_noise_db(double signal, double noise) {
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
}

double mean_lost(const std::vector<OutputError>& errors) {
  double sum = 0;
  for (const OutputError& error : errors) sum += error.lost;
  return sum / static_cast<double>(errors.size());
}

FloatOutputs float_outputs(QuantizedModel& model, const std::vector<at::Tensor>& x) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const std::vector<bool> none(model.prepared().graph.nodes.size(), false);
  FloatOutputs result;
  std::vector<at::Tensor> sums;
  std::vector<double> counts;
  for (const at::Tensor& batch : x) {
    result.y.push_back(outputs(model, batch, none));
    sums.resize(result.y.back().size());
    counts.resize(sums.size());
    for (size_t o = 0; o < sums.size(); ++o) {
      const at::Tensor y = by_channel(result.y.back()[o]);
      const at::Tensor sum = y.sum(at::IntArrayRef{0, 2}, false, at::kDouble);
      sums[o] = sums[o].defined() ? sums[o] + sum : sum;
      counts[o] += static_cast<double>(y.size(0) * y.size(2));
    }
  }
  for (size_t o = 0; o < sums.size(); ++o) result.mean.push_back((sums[o] / counts[o]).to(at::kFloat).view({1, -1, 1}));
  return result;
}

OutputErrors::OutputErrors(QuantizedModel& model, const std::vector<at::Tensor>& x, FloatOutputs wanted)
    : model_(model), x_(x), wanted_(std::move(wanted)) {}

std::vector<OutputError> OutputErrors::measure(const std::vector<bool>& quantized) const {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const Graph& graph = model_.prepared().graph;
  std::vector<OutputError> errors(graph.outputs.size());
  std::vector<double> signal(errors.size()), noise(errors.size()), answers(errors.size());
  double images = 0;
  for (size_t b = 0; b < x_.size(); ++b) {
    const std::vector<at::Tensor> got = outputs(model_, x_[b], quantized);
    images += static_cast<double>(x_[b].size(0));
    for (size_t o = 0; o < errors.size(); ++o) {
      const at::Tensor x = by_channel(wanted_.y[b][o]), y = by_channel(got[o]);
      const at::Tensor n = by_image((x - y).square()), s = by_image((x - wanted_.mean[o]).square());
      errors[o].lost += (n / (n + s).clamp_min(std::numeric_limits<double>::min())).sum().item<double>();
      signal[o] += x.square().sum(at::kDouble).item<double>();
      noise[o] += n.sum().item<double>();
      errors[o].agreement += x.argmax(1).eq(y.argmax(1)).sum().item<double>();
      answers[o] += static_cast<double>(x.size(0) * x.size(2));
    }
  }
  for (size_t o = 0; o < errors.size(); ++o) {
    errors[o].name = graph.nodes[graph.outputs[o]].name;
    errors[o].lost /= images;
    errors[o].agreement /= answers[o];
    errors[o].sqnr_db = signal_to_noise_db(signal[o], noise[o]);
  }
  return errors;
}

ChosenRanges choose_ranges(QuantizedModel& model, const OutputErrors& errors, const std::vector<RangeMethod>& methods,
                           int trials, const std::function<void(int trial)>& done) {
  constexpr double kDiffer = 1.2;  // ranges nearer to each other than that are not tried for single edges
  constexpr double kPays = 0.995;  // what a single edge's range must leave of the error, or it is chance
  const Prepared& prepared = model.prepared();
  ChosenRanges result;
  int trial = 0;
  std::vector<std::vector<QParams>> ranges;  // by method, by node
  for (const RangeMethod& method : methods) {
    done(trial++);
    model.choose_edges(method.method, method.percentile);
    ranges.push_back(model.edges());
    result.trials.push_back({method, errors.lost()});
  }
  const auto best = std::min_element(result.trials.begin(), result.trials.end(),
                                     [](const auto& a, const auto& b) { return a.lost < b.lost; });
  result.chosen = static_cast<size_t>(best - result.trials.begin());
  result.lost = best->lost;
  model.choose_edges(best->ranges.method, best->ranges.percentile);

  std::vector<Alternative> alternatives;
  for (int n = 0; n < static_cast<int>(errors.nodes()); ++n) {
    if (!prepared.has_edge(n)) continue;
    const float own = ranges[result.chosen][n].scale;
    for (size_t m = 0; m < methods.size(); ++m) {
      const double ratio = ranges[m][n].scale / static_cast<double>(own);
      const double more = std::max(ratio, 1 / ratio);
      if (more >= kDiffer) alternatives.push_back({n, methods[m], ranges[m][n], more});
    }
  }
  std::stable_sort(alternatives.begin(), alternatives.end(),
                   [](const Alternative& a, const Alternative& b) { return a.ratio > b.ratio; });
  for (const Alternative& other : alternatives) {
    if (trial >= trials) break;
    done(trial++);
    const QParams before = model.edges()[other.node];
    model.set_edge(other.node, other.qparams);
    const double lost = errors.lost();
    if (lost > kPays * result.lost) {
      model.set_edge(other.node, before);
      continue;
    }
    result.lost = lost;
    const std::string& name = prepared.graph.nodes[other.node].name;
    const auto known = std::find_if(result.edges.begin(), result.edges.end(),
                                    [&](const ChosenRanges::Edge& edge) { return edge.node == name; });
    if (known == result.edges.end()) {
      result.edges.push_back({name, other.ranges, before.scale, other.qparams.scale});
    } else {
      known->ranges = other.ranges;
      known->after = other.qparams.scale;
    }
  }
  return result;
}

}  // namespace octet
