// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/joint_ranges.h"
#include "src/quant/curves.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "src/quant/calibrate.h"
#include "src/train/model/device.h"
#include "src/train/model/threads.h"

namespace octet {
namespace {

constexpr int kProbes = 2;         // random sums of the outputs
constexpr int64_t kValues = 4096;  // of an edge and image
constexpr uint64_t kSeed = 1;
constexpr double kRuined = 1e6;  // noise of an image that is lost; sums with more, or with infinity, forget the others

/// Sums over some of an image's values.
struct Sums {
  double rounded = 0;  ///< squared gradient times squared error of values within the range
  double cut = 0;      ///< gradient times error of those outside
};

/// Eight sums at a time, which compilers turn into vectors.
Sums sums_of(const float* values, const float* gradients, int64_t count, const QParams& codes) {
  constexpr int kLanes = 8;
  constexpr float kWhole = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  std::array<float, kLanes> rounded{}, cut{};
  const float inverse = 1 / codes.scale;
  const auto lowest = static_cast<float>(codes.quant_min - codes.zero_point);
  const auto highest = static_cast<float>(codes.quant_max - codes.zero_point);
  const auto add = [&](int lane, float value, float gradient) {
    const float x = value * inverse;
    const float held = std::min(std::max(x, lowest), highest);
    const float error = gradient * ((held + kWhole) - kWhole - x);
    const float within = held == x ? 1.0f : 0.0f;
    rounded[lane] += within * error * error;
    cut[lane] += (1.0f - within) * error;
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) add(lane, values[i + lane], gradients[i + lane]);
  for (; i < count; ++i) add(0, values[i], gradients[i]);
  const double step = codes.scale;
  return {step * step * std::accumulate(rounded.begin(), rounded.end(), 0.0),
          step * std::accumulate(cut.begin(), cut.end(), 0.0)};
}

/// Calls take(part) and returns whether the GPU's memory was enough for it. Throws c10::OutOfMemoryError for one image.
bool fits(const at::Tensor& part, const std::function<void(const at::Tensor& part)>& take) {
  try {
    take(part);
    return true;
  } catch (const c10::OutOfMemoryError&) {
    if (part.size(0) == 1) throw;
  }
  if (!part.is_cpu()) at::getDeviceAllocator(part.device().type())->emptyCache();  // none of its blocks is in use
  return false;
}

/// Calls `take` for batches, and from one that does not fit into the GPU's memory on for parts of half as many images.
/// What `take` had done of one that did not fit must count for nothing.
void for_parts(const std::vector<at::Tensor>& x, const std::function<void(const at::Tensor& part)>& take) {
  int64_t most = std::numeric_limits<int64_t>::max();
  for (const at::Tensor& batch : x) {
    for (int64_t begin = 0; begin < batch.size(0);) {
      const int64_t count = std::min(most, batch.size(0) - begin);
      if (fits(batch.narrow(0, begin, count), take))
        begin += count;
      else
        most = (count + 1) / 2;
    }
  }
}

/// Returns by node the smallest and the largest value of each edge in the float network.
std::vector<Interval> all_values(QuantizedModel& model, const std::vector<at::Tensor>& x,
                                 const std::function<void()>& each) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Prepared& prepared = model.prepared();
  std::vector<Interval> values(prepared.graph.nodes.size(), {kInfinity, -kInfinity});
  for_parts(x, [&](const at::Tensor& part) {
    each();
    model.forward_partly(part, std::vector<bool>(values.size(), false), [&](int n, const at::Tensor& y) {
      if (!prepared.has_edge(n)) return;
      values[n].lo = std::min(values[n].lo, y.min().item<double>());
      values[n].hi = std::max(values[n].hi, y.max().item<double>());
    });
  });
  return values;
}

/// Returns the edges of a model with the ranges that are tried. all: all_values().
std::vector<EdgeNoise> edges_of(const QuantizedModel& model, const std::vector<Interval>& all) {
  const Prepared& prepared = model.prepared();
  const std::vector<std::vector<int>> lookups = only_lookups(prepared);
  const FloatParams scales = float_params(model.weights());
  std::vector<EdgeNoise> edges;
  for (int n = 0; n < static_cast<int>(all.size()); ++n)
    if (prepared.has_edge(n))
      edges.push_back({.node = n, .ranges = {}, .noise = std::vector<std::vector<float>>(kReaches)});
  share_among_threads(static_cast<int64_t>(edges.size()), /*grain=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) {
      const int n = edges[e].node;
      std::vector<Interval> within;
      for (int k = 0; k < kReaches; ++k) {
        const double most = std::max(-all[n].lo, all[n].hi) * reach(k);
        within.push_back({std::clamp(all[n].lo, -most, most), std::clamp(all[n].hi, -most, most)});
      }
      for (const Interval& told : told_apart(within, prepared, lookups[n], scales))
        edges[e].ranges.push_back(choose_qparams(static_cast<float>(told.lo), static_cast<float>(told.hi),
                                                 prepared.range[n], prepared.affine[n]));
    }
  });
  return edges;
}

/// Fills the noise of edges, batch by batch.
class Probes {
 public:
  Probes(QuantizedModel& model, std::vector<EdgeNoise>& edges, const std::vector<at::Tensor>& median)
      : model_(model), edges_(edges), median_(median) {}

  void see(const at::Tensor& x) {
    const c10::AutoGradMode with_gradients(true);
    const Graph& graph = model_.prepared().graph;
    make_room(static_cast<size_t>(x.size(0)));
    std::vector<at::Tensor> values(graph.nodes.size());
    model_.forward_partly(x.detach().requires_grad_(true), std::vector<bool>(graph.nodes.size(), false),
                          [&](int n, const at::Tensor& y) { values[n] = y; });
    std::vector<at::Tensor> of_edges, outputs, weights;
    for (const EdgeNoise& edge : edges_) of_edges.push_back(values[edge.node]);
    for (size_t o = 0; o < graph.outputs.size(); ++o) {
      outputs.push_back(values[graph.outputs[o]]);
      weights.push_back(for_signal_one(outputs.back().detach(), median_[o]));
    }
    for (int probe = 0; probe < kProbes; ++probe) {
      std::vector<at::Tensor> sums = signs(outputs, probe);
      for (size_t o = 0; o < outputs.size(); ++o) sums[o] = sums[o].to(x.device()) * weights[o];
      add(of_edges, torch::autograd::grad(outputs, of_edges, sums, /*retain_graph=*/probe + 1 < kProbes,
                                          /*create_graph=*/false, /*allow_unused=*/true));
    }
    seen_ += static_cast<size_t>(x.size(0));
  }

 private:
  /// Makes the noise of the next images 0, also where a pass over them has ended early.
  void make_room(size_t images) {
    for (EdgeNoise& edge : edges_) {
      for (std::vector<float>& noise : edge.noise) {
        noise.resize(seen_);
        noise.resize(seen_ + images);
      }
    }
  }

  /// Returns -1 or 1 for each value of outputs, on the host. An image has the same ones in a batch of any size.
  std::vector<at::Tensor> signs(const std::vector<at::Tensor>& outputs, int probe) {
    std::vector<at::Tensor> all;
    for (const at::Tensor& y : outputs) all.push_back(at::empty(y.sizes(), at::kFloat));
    for (int64_t i = 0; i < outputs.front().size(0); ++i) {
      generator_.set_current_seed(kSeed + (seen_ + static_cast<size_t>(i)) * kProbes + static_cast<size_t>(probe));
      for (const at::Tensor& one : all) one.select(0, i).random_(0, 2, generator_).mul_(2).sub_(1);
    }
    return all;
  }

  /// Returns for each image what its output is to be multiplied by, [N, 1, 1, 1].
  static at::Tensor for_signal_one(const at::Tensor& y, const at::Tensor& median) {
    const at::Tensor signal = (y.reshape({y.size(0), y.size(1), -1}) - median).square().flatten(1).sum(1);
    std::vector<int64_t> sizes(static_cast<size_t>(y.dim()), 1);
    sizes.front() = y.size(0);
    return signal.clamp_min(std::numeric_limits<float>::min()).rsqrt().view(sizes);
  }

  void add(const std::vector<at::Tensor>& values, const std::vector<at::Tensor>& gradients) {
    const c10::NoGradGuard no_grad;
    for (size_t e = 0; e < edges_.size(); ++e) {
      EdgeNoise& edge = edges_[e];
      if (!gradients[e].defined()) continue;  // no output depends on it
      const int64_t all = values[e].numel() / values[e].size(0), step = ((all + kValues - 1) / kValues) | 1;
      const auto some = [&](const at::Tensor& of) {
        return to_host(of.detach().flatten(1).slice(1, 0, all, step).contiguous());
      };
      const at::Tensor y = some(values[e]), gradient = some(gradients[e]);
      const int64_t count = y.size(1);
      const double share = static_cast<double>(all) / static_cast<double>(count);
      share_among_threads(y.size(0), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const float *row = y.const_data_ptr<float>() + i * count, *g = gradient.const_data_ptr<float>() + i * count;
          for (int k = 0; k < kReaches; ++k) {
            const Sums sums = sums_of(row, g, count, edge.ranges[k]);
            const double noise = share * sums.rounded + share * share * sums.cut * sums.cut;
            edge.noise[k][seen_ + static_cast<size_t>(i)] +=
                static_cast<float>(noise < kRuined ? noise / kProbes : kRuined);
          }
        }
      });
    }
  }

  QuantizedModel& model_;
  std::vector<EdgeNoise>& edges_;
  const std::vector<at::Tensor>& median_;
  size_t seen_ = 0;  ///< images
  at::Generator generator_ = at::detail::createCPUGenerator(kSeed);
};

/// The search among the ranges of all edges.
class Together {
 public:
  Together(const std::vector<EdgeNoise>& edges, int outputs) : edges_(edges), outputs_(outputs) {}

  /// Changes `chosen` until no edge gains by another range. Returns what is lost then.
  double descend(std::vector<int>& chosen) const {
    constexpr double kGain = 1e-7;
    const size_t images = edges_.front().noise.front().size();
    std::vector<double> noise(images), others(images), with(images);
    for (size_t e = 0; e < edges_.size(); ++e)
      for (size_t i = 0; i < images; ++i) noise[i] += edges_[e].noise[chosen[e]][i];
    double least = lost(noise);
    for (bool better = true; better;) {
      better = false;
      for (size_t e = 0; e < edges_.size(); ++e) {
        const std::vector<std::vector<float>>& own = edges_[e].noise;
        for (size_t i = 0; i < images; ++i) others[i] = std::max(0.0, noise[i] - own[chosen[e]][i]);
        for (int k = 0; k < kReaches; ++k) {
          for (size_t i = 0; i < images; ++i) with[i] = others[i] + own[k][i];
          const double now = lost(with);
          if (now > least - kGain) continue;
          least = now;
          chosen[e] = k;
          noise = with;
          better = true;
        }
      }
    }
    return least;
  }

 private:
  double lost(const std::vector<double>& noise) const {
    double sum = 0;
    for (const double n : noise) sum += n / (n + outputs_);
    return sum / static_cast<double>(noise.size());
  }

  const std::vector<EdgeNoise>& edges_;
  const double outputs_;
};

}  // namespace

double reach(int k) { return std::exp2(-k / 3.0); }

std::vector<EdgeNoise> edge_noises(QuantizedModel& model, const std::vector<at::Tensor>& x,
                                   const std::vector<at::Tensor>& median, const std::function<void()>& each) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  std::vector<EdgeNoise> edges = edges_of(model, all_values(model, x, each));
  Probes probes(model, edges, median);
  for_parts(x, [&](const at::Tensor& part) {
    each();
    probes.see(part);
  });
  return edges;
}

std::vector<int> choose_together(const std::vector<EdgeNoise>& edges, int outputs, const std::function<void()>& each) {
  std::vector<int> best;
  if (edges.empty()) return best;
  for (const EdgeNoise& edge : edges) {
    const std::vector<EdgeNoise> alone = {edge};
    std::vector<int> own(1);
    Together(alone, outputs).descend(own);
    best.push_back(own.front());
  }
  const Together together(edges, outputs);
  each();
  double least = together.descend(best);
  for (int k = 0; k < kReaches; k += 3) {
    each();
    std::vector<int> common(edges.size(), k);
    const double now = together.descend(common);
    if (now >= least) continue;
    least = now;
    best = std::move(common);
  }
  return best;
}

std::vector<QParams> joint_ranges(QuantizedModel& model, const std::vector<at::Tensor>& x,
                                  const std::vector<at::Tensor>& median, const std::function<void()>& each) {
  const std::vector<EdgeNoise> edges = edge_noises(model, x, median, each);
  const std::vector<int> chosen = choose_together(edges, static_cast<int>(model.prepared().graph.outputs.size()), each);
  std::vector<QParams> ranges = model.edges();
  for (size_t e = 0; e < edges.size(); ++e) ranges[edges[e].node] = edges[e].ranges[chosen[e]];
  return ranges;
}

void set_edges(QuantizedModel& model, const std::vector<QParams>& ranges) {
  for (int n = 0; n < static_cast<int>(ranges.size()); ++n)
    if (model.prepared().has_edge(n)) model.set_edge(n, ranges[n]);
}

}  // namespace octet
