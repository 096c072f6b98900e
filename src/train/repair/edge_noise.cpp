// SPDX-License-Identifier: Apache-2.0
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/core/cpu.h"
#include "src/train/model/device.h"
#include "src/train/model/threads.h"
#include "src/train/repair/joint_ranges.h"

namespace octet {
namespace {

constexpr int kProbes = 2;         // random sums of the outputs
constexpr int64_t kValues = 4096;  // of an edge and image
constexpr uint64_t kSeed = 1;
constexpr double kRuined = 1e6;  // noise of an image that is lost; sums with more, or with infinity, forget the others

/// Sums over some of an image's values.
struct Sums {
  double rounded = 0;      ///< squared gradient times squared error of values within the range
  double cut = 0;          ///< gradient times error of those outside
  double cut_squares = 0;  ///< their squares
  double cut_sizes = 0;    ///< their magnitudes
};

/// The cut values of an image of which not all are taken, as far as is known before all images are seen: the sum of
/// their squares, twice the sum of the products of all pairs' magnitudes, and both sums as they were with their signs,
/// over the first.
struct Cut {
  float squares = 0, pairs = 0;
  float signed_pairs = 0, all_pairs = 0;

  void add(const Sums& sums, int of) {
    if (sums.cut_squares == 0) return;
    const double products = sums.cut_sizes * sums.cut_sizes - sums.cut_squares;
    squares += static_cast<float>(sums.cut_squares / of);
    pairs += static_cast<float>(products / of);
    signed_pairs += static_cast<float>(sums.cut * sums.cut / sums.cut_squares - 1);
    all_pairs += static_cast<float>(products / sums.cut_squares);
  }
};

constexpr int kLanes = 8;  // sums at a time
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));

double sum_of(const Lanes& lanes) {
  double sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  return sum;
}

OCTET_CLONES Sums sums_of(const float* values, const float* gradients, int64_t count, const QParams& codes) {
  constexpr float kWhole = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float inverse = 1 / codes.scale;
  const Lanes zero{}, lowest = zero + static_cast<float>(codes.quant_min - codes.zero_point),
                      highest = zero + static_cast<float>(codes.quant_max - codes.zero_point);
  Lanes rounded{}, cut{}, cut_squares{}, cut_sizes{};
  const auto add = [&](const Lanes& value, const Lanes& gradient) __attribute__((always_inline)) {
    const Lanes x = value * inverse, least = x < lowest ? lowest : x, held = highest < least ? highest : least;
    const Lanes error = gradient * ((held + kWhole) - kWhole - x), square = error * error;
    const Lanes outside = held == x ? zero : error;
    rounded += held == x ? square : zero;
    cut += outside;
    cut_squares += held == x ? zero : square;
    cut_sizes += outside < zero ? -outside : outside;
  };
  Lanes value{}, gradient{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    std::memcpy(&value, values + i, sizeof value);
    std::memcpy(&gradient, gradients + i, sizeof gradient);
    add(value, gradient);
  }
  value = gradient = zero;  // behind the last value gradients are 0, and so are errors
  std::memcpy(&value, values + i, sizeof(float) * static_cast<size_t>(count - i));
  std::memcpy(&gradient, gradients + i, sizeof(float) * static_cast<size_t>(count - i));
  add(value, gradient);
  const double step = codes.scale;
  return {step * step * sum_of(rounded), step * sum_of(cut), step * step * sum_of(cut_squares),
          step * sum_of(cut_sizes)};
}

/// Returns the values of an edge that are taken, or their gradients, of y, [N, ...]: float [N, values] on the host, in
/// the order of y's dimensions whatever its layout.
at::Tensor taken_of(const at::Tensor& y) {
  const int64_t all = y.numel() / y.size(0), step = ((all + kValues - 1) / kValues) | 1,
                count = (all + step - 1) / step;
  if (!y.is_cpu()) return to_host(y.detach().flatten(1).slice(1, 0, all, step).contiguous());
  std::vector<int64_t> places;  // in an image's memory: to copy all values into that order takes as long as a layer
  for (int64_t value = 0; value < all; value += step) {
    int64_t place = 0, rest = value;
    for (int64_t d = y.dim() - 1; d > 0; rest /= y.size(d--)) place += rest % y.size(d) * y.stride(d);
    places.push_back(place);
  }
  const at::Tensor taken = at::empty({y.size(0), count}, at::kFloat);
  float* const to = taken.mutable_data_ptr<float>();
  const float* const from = y.const_data_ptr<float>();
  share_among_threads(y.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t v = 0; v < count; ++v) to[i * count + v] = from[i * y.stride(0) + places[v]];
  });
  return taken;
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

/// Returns SeenImages::values.
std::vector<Interval> all_values(QuantizedModel& model, const SeenImages& images, const std::function<void()>& each) {
  if (!images.values.empty()) return images.values;
  SeenImages seen;
  const std::vector<bool> none(model.prepared().graph.nodes.size(), false);
  for_parts(images.x, [&](const at::Tensor& part) {
    each();
    model.forward_partly(part, none, [&](int n, const at::Tensor& y) { seen.see(model.prepared(), n, y); });
  });
  return seen.values;
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
      : model_(model), edges_(edges), median_(median), cuts_(edges.size()), shares_(edges.size(), 1) {}

  void see(const at::Tensor& x) {
    const c10::AutoGradMode with_gradients(true);
    const Graph& graph = model_.prepared().graph;
    make_room(static_cast<size_t>(x.size(0)));
    std::vector<at::Tensor> values(graph.nodes.size());
    model_.forward_partly(x.detach().requires_grad_(true), std::vector<bool>(graph.nodes.size(), false),
                          [&](int n, const at::Tensor& y) { values[n] = y; });
    std::vector<at::Tensor> of_edges, taken, outputs, weights;
    for (const EdgeNoise& edge : edges_) {
      of_edges.push_back(values[edge.node]);
      taken.push_back(taken_of(of_edges.back()));
    }
    for (size_t o = 0; o < graph.outputs.size(); ++o) {
      outputs.push_back(values[graph.outputs[o]]);
      weights.push_back(for_signal_one(outputs.back().detach(), median_[o]));
    }
    for (int probe = 0; probe < kProbes; ++probe) {
      std::vector<at::Tensor> sums = signs(outputs, probe);
      for (size_t o = 0; o < outputs.size(); ++o) sums[o] = sums[o].to(x.device()) * weights[o];
      add(taken, torch::autograd::grad(outputs, of_edges, sums, /*retain_graph=*/probe + 1 < kProbes,
                                       /*create_graph=*/false, /*allow_unused=*/true));
    }
    seen_ += static_cast<size_t>(x.size(0));
  }

  /// Adds the noise of cut values where some of an edge are taken. The square of a sum of these has one in share^2 of
  /// the pairs of two values, and one in `share` of the values with themselves. How much of a pair's product remains
  /// with its sign is one number for all images: of one image's two random sums it would be chance, and ranges would
  /// be chosen by it.
  void finish() {
    for (size_t e = 0; e < edges_.size(); ++e) {
      const double share = shares_[e];
      for (int k = 0; k < static_cast<int>(cuts_[e].size()); ++k) {
        double with_signs = 0, all = 0;
        for (const Cut& image : cuts_[e][k]) with_signs += image.signed_pairs, all += image.all_pairs;
        const double remains = all > 0 ? std::max(0.0, with_signs / all) : 0;
        for (size_t i = 0; i < seen_; ++i) {
          const Cut& image = cuts_[e][k][i];
          float& noise = edges_[e].noise[k][i];
          const double sum = noise + share * image.squares + share * share * remains * image.pairs;
          noise = static_cast<float>(sum < kRuined ? sum : kRuined);
        }
      }
    }
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
    for (std::vector<std::vector<Cut>>& edge : cuts_) {
      for (std::vector<Cut>& cuts : edge) {
        cuts.resize(seen_);
        cuts.resize(seen_ + images);
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

  void add(const std::vector<at::Tensor>& taken, const std::vector<at::Tensor>& gradients) {
    const c10::NoGradGuard no_grad;
    for (size_t e = 0; e < edges_.size(); ++e) {
      EdgeNoise& edge = edges_[e];
      if (!gradients[e].defined()) continue;  // no output depends on it
      const at::Tensor &y = taken[e], gradient = taken_of(gradients[e]);
      const int64_t count = y.size(1);
      const double share = static_cast<double>(gradients[e].numel()) / static_cast<double>(y.numel());
      shares_[e] = share;
      if (share > 1) cuts_[e].resize(kReaches, std::vector<Cut>(edge.noise.front().size()));
      share_among_threads(y.size(0), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const float *row = y.const_data_ptr<float>() + i * count, *g = gradient.const_data_ptr<float>() + i * count;
          for (int k = 0; k < kReaches; ++k) {
            const Sums sums = sums_of(row, g, count, edge.ranges[k]);
            if (share > 1) cuts_[e][k][seen_ + static_cast<size_t>(i)].add(sums, kProbes);
            const double noise = share * sums.rounded + (share > 1 ? 0 : sums.cut * sums.cut);
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
  std::vector<std::vector<std::vector<Cut>>> cuts_;  ///< by edge: none, or [kReaches][images]
  std::vector<double> shares_;                       ///< by edge: values for one that is taken
  size_t seen_ = 0;                                  ///< images
  at::Generator generator_ = at::detail::createCPUGenerator(kSeed);
};

}  // namespace

void SeenImages::see(const Prepared& prepared, int node, const at::Tensor& y) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  values.resize(prepared.graph.nodes.size(), {kInfinity, -kInfinity});
  if (!prepared.has_edge(node)) return;
  const auto [lo, hi] = at::aminmax(y);
  values[node].lo = std::min(values[node].lo, lo.item<double>());
  values[node].hi = std::max(values[node].hi, hi.item<double>());
}

double reach(int k) { return std::exp2(-k / 3.0); }

std::vector<EdgeNoise> edge_noises(QuantizedModel& model, const SeenImages& images,
                                   const std::vector<at::Tensor>& median, const std::function<void()>& each) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  std::vector<EdgeNoise> edges = edges_of(model, all_values(model, images, each));
  Probes probes(model, edges, median);
  for_parts(images.x, [&](const at::Tensor& part) {
    each();
    probes.see(part);
  });
  probes.finish();
  return edges;
}

}  // namespace octet
