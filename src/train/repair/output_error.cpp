// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/output_error.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/median.h>
#include <ATen/ops/nan_to_num.h>
#include <c10/core/GradMode.h>

#include <limits>
#include <utility>

#include "src/train/model/device.h"

namespace octet {
namespace {

/// Sums by image, double [N].
at::Tensor by_image(const at::Tensor& x) { return x.flatten(1).sum(1, false, at::kDouble); }

/// An output of one batch as [N, C, pixels].
at::Tensor by_channel(const at::Tensor& y) { return y.reshape({y.size(0), y.size(1), -1}); }

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

FloatOutputs::FloatOutputs(std::vector<std::vector<at::Tensor>> outputs) : y(std::move(outputs)) {
  for (size_t o = 0; o < y.front().size(); ++o) {
    std::vector<at::Tensor> all;  // [C, images * pixels] of each batch
    for (const std::vector<at::Tensor>& batch : y) all.push_back(by_channel(batch[o]).transpose(0, 1).flatten(1));
    const at::Tensor whole = to_host(at::cat(all, 1));  // a GPU has no median that is the same in every run
    median.push_back(std::get<0>(whole.median(1)).to(at::kFloat).view({1, -1, 1}).to(y.front()[o].device()));
  }
}

FloatOutputs FloatOutputs::of_batch(size_t batch) const {
  FloatOutputs one = *this;
  one.y = {y[batch]};
  return one;
}

FloatOutputs float_outputs(QuantizedModel& model, const std::vector<at::Tensor>& x) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const std::vector<bool> none(model.prepared().graph.nodes.size(), false);
  std::vector<std::vector<at::Tensor>> y;
  for (const at::Tensor& batch : x) y.push_back(partly_quantized_outputs(model, batch, none));
  return FloatOutputs(std::move(y));
}

size_t silent_images(const FloatOutputs& wanted, size_t output) {
  constexpr double kCodes = 255;
  double largest = 0;
  std::vector<at::Tensor> furthest;  // by image, [N] of each batch
  for (const std::vector<at::Tensor>& batch : wanted.y) {
    const at::Tensor y = by_channel(batch[output]);
    largest = std::max(largest, y.abs().max().item<double>());
    furthest.push_back((y - wanted.median[output]).abs().flatten(1).amax(1));
  }
  return static_cast<size_t>(at::cat(furthest).le(largest / kCodes).sum().item<int64_t>());
}

std::vector<OutputError> output_errors(const Graph& graph, const FloatOutputs& wanted,
                                       const std::function<std::vector<at::Tensor>(size_t batch)>& got) {
  std::vector<OutputError> errors(graph.outputs.size());
  std::vector<double> signal(errors.size()), noise(errors.size()), answers(errors.size());
  double images = 0;
  for (size_t b = 0; b < wanted.y.size(); ++b) {
    const std::vector<at::Tensor> outputs = got(b);
    images += static_cast<double>(outputs.front().size(0));
    for (size_t o = 0; o < errors.size(); ++o) {
      const at::Tensor x = by_channel(wanted.y[b][o]), y = by_channel(outputs[o]);
      const at::Tensor n = by_image((x - y).square()), s = by_image((x - wanted.median[o]).square());
      const at::Tensor lost = n / (n + s).clamp_min(std::numeric_limits<double>::min());
      errors[o].lost += lost.nan_to_num(1).sum().item<double>();  // infinite noise
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

OutputErrors::OutputErrors(QuantizedModel& model, const std::vector<at::Tensor>& x, FloatOutputs wanted)
    : model_(model), x_(x), wanted_(std::move(wanted)) {}

std::vector<OutputError> OutputErrors::measure() const {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  DeployedNetwork network = deployed();
  return output_errors(model_.prepared().graph, wanted_, [&](size_t b) { return network.outputs(x_[b]); });
}

DeployedNetwork OutputErrors::deployed() const { return DeployedNetwork(model_, largest_batch(x_)); }

double OutputErrors::lost() const {
  DeployedNetwork network = deployed();
  return lost_by_batches(network).back();
}

std::vector<double> OutputErrors::lost_by_batches(DeployedNetwork& network, const std::vector<double>& most) const {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  std::vector<double> lost;
  double sum = 0, images = 0;
  for (size_t b = 0; b < x_.size(); ++b) {
    const auto size = static_cast<double>(x_[b].size(0));
    const std::vector<OutputError> errors =
        output_errors(model_.prepared().graph, wanted_.of_batch(b), [&](size_t) { return network.outputs(x_[b]); });
    sum += size * mean_lost(errors);
    images += size;
    lost.push_back(sum / images);
    if (!most.empty() && lost[b] > most[b]) break;
  }
  return lost;
}

RangeMethod ChosenRanges::best_method() const {
  std::vector<Trial> alone = trials;
  std::erase_if(alone, [](const Trial& trial) { return trial.ranges.joint(); });
  return std::min_element(alone.begin(), alone.end(), [](const auto& a, const auto& b) { return a.lost < b.lost; })
      ->ranges;
}

ChosenRanges choose_ranges(QuantizedModel& model, const OutputErrors& errors, const std::vector<RangeMethod>& methods,
                           const SeenImages& seen, int trials, const std::function<void(int trial)>& done) {
  constexpr double kDiffer = 1.2;  // ranges nearer to each other than that are not tried for single edges
  constexpr double kPays = 0.995;  // what a single edge's range must leave of the error, or it is chance
  const Prepared& prepared = model.prepared();
  ChosenRanges result;
  int trial = 0;
  std::vector<std::vector<QParams>> ranges;  // by method, by node
  std::vector<std::vector<double>> lost;     // by method
  std::optional<DeployedNetwork> network;    // whose weights are converted once
  for (const RangeMethod& method : methods) {
    done(trial);
    if (!method.joint()) {
      model.choose_edges(*method.method, method.percentile);
    } else if (!set_joint_ranges(model, seen, errors.median(), [&] { done(trial); })) {
      result.joint_fits = false;
      continue;
    }
    ++trial;
    ranges.push_back(model.edges());
    network ? network->change_edges() : void(network.emplace(errors.deployed()));
    lost.push_back(errors.lost_by_batches(*network));
    result.trials.push_back({method, lost.back().back()});
  }
  const auto best = std::min_element(result.trials.begin(), result.trials.end(),
                                     [](const auto& a, const auto& b) { return a.lost < b.lost; });
  result.chosen = static_cast<size_t>(best - result.trials.begin());
  const auto that_pays = [](std::vector<double> least) {
    for (double& x : least) x *= kPays;
    return least;
  };
  std::vector<double> least = that_pays(lost[result.chosen]);
  result.lost = best->lost;
  const RangeMethod observed = result.best_method();
  std::vector<QParams> edges = ranges[result.chosen];
  model.set_edges(edges, *observed.method, observed.percentile);

  std::vector<Alternative> alternatives;
  for (int n = 0; n < static_cast<int>(errors.nodes()); ++n) {
    if (!prepared.has_edge(n)) continue;
    const float own = ranges[result.chosen][n].scale;
    for (size_t m = 0; m < result.trials.size(); ++m) {
      const double ratio = ranges[m][n].scale / static_cast<double>(own);
      const double more = std::max(ratio, 1 / ratio);
      if (more >= kDiffer) alternatives.push_back({n, result.trials[m].ranges, ranges[m][n], more});
    }
  }
  std::stable_sort(alternatives.begin(), alternatives.end(),
                   [](const Alternative& a, const Alternative& b) { return a.ratio > b.ratio; });
  for (const Alternative& other : alternatives) {
    if (trial >= trials) break;
    done(trial++);
    const QParams before = std::exchange(edges[other.node], other.qparams);
    model.set_edges(edges);
    network->change_edges();
    const std::vector<double> now = errors.lost_by_batches(*network, least);
    if (now.size() < least.size() || now.back() > least.back()) {
      edges[other.node] = before;
      model.set_edges(edges);
      continue;
    }
    least = that_pays(now);
    result.lost = now.back();
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
