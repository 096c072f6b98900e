// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/joint_ranges.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace octet {
namespace {

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

std::vector<QParams> joint_ranges(QuantizedModel& model, const SeenImages& images,
                                  const std::vector<at::Tensor>& median, const std::function<void()>& each) {
  const std::vector<EdgeNoise> edges = edge_noises(model, images, median, each);
  const std::vector<int> chosen = choose_together(edges, static_cast<int>(model.prepared().graph.outputs.size()), each);
  std::vector<QParams> ranges = model.edges();
  for (size_t e = 0; e < edges.size(); ++e) ranges[edges[e].node] = edges[e].ranges[chosen[e]];
  return ranges;
}

bool set_joint_ranges(QuantizedModel& model, const SeenImages& images, const std::vector<at::Tensor>& median,
                      const std::function<void()>& each) try {
  model.set_edges(joint_ranges(model, images, median, each));
  return true;
} catch (const c10::OutOfMemoryError&) {
  return false;
}
}  // namespace octet
