// CudaProgram: what is chosen by measurement behind the kernels before it: by which kernels a group runs, and which
// convolutions run beside the kernel before them (kernels/cuda_overlap.h).
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "src/engine/cuda/cuda_program.h"
#include "src/engine/cuda/remembered_choice.h"
#include "src/engine/cuda/timing.h"

namespace octet {
void CudaProgram::choose_group(CudaGroup& group, int batch) {
  const std::vector<int>& nodes = group.group().nodes;
  std::vector<size_t> earlier;  // as one the group runs where its last node would
  for (int node = 0; node < group.last(); ++node) {
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end() && launches_in_run(node, batch)) {
      earlier.push_back(node);
    }
  }
  GroupProblem problem{.images = batch, .always = always_fused_};
  for (const int node : nodes) {
    const Layer& layer = layers_[node];
    problem.nodes.push_back({layer.step.get(), layer.inputs, layer.output, layer.image_bytes * batch});
  }
  problem.run_earlier = [&] {
    for (const size_t node : earlier) launch_in_run(node, batch);
  };
  problem.run_before = [&] { launch_in_run(earlier.back(), batch); };
  group.choose(problem, work_, stream_);
}

Traffic CudaProgram::traffic(size_t node, int batch) const {
  const auto output = [&](int n) { return ByteRange{layers_[n].output, layers_[n].image_bytes * batch}; };
  const CudaGroup* group = fused_group(node, batch);
  return group != nullptr ? traffic_of(graph_, group->group(), output)
                          : traffic_of(graph_, static_cast<int>(node), output);
}

bool CudaProgram::may_run_beside(size_t before, size_t node, int batch) const {
  return layers_[node].step->can_run_beside(batch) && !layers_[before].beside.contains(batch) &&
         independent(traffic(before, batch), traffic(node, batch));
}

// When all groups have been chosen: what is launched before a node is known.
void CudaProgram::choose_beside(int batch) {
  constexpr int kRuns = 7;
  // What is launched at a node, and by which kernel.
  const auto described = [&](size_t node) {
    if (const CudaGroup* group = fused_group(node, batch)) {
      return fmt::format("{} by {}", group->description(), group->fused(batch)->kernel(batch));
    }
    // A merged lookup is launched with its convolution, whose memory it has.
    std::vector<int> nodes = {static_cast<int>(node)};
    if (layers_[node].buffer != nodes[0]) nodes.insert(nodes.begin(), layers_[node].buffer);
    return fmt::format("{} by {}", described_nodes(graph_, nodes), layers_[node].step->kernel(batch));
  };
  std::optional<size_t> before;
  for (size_t node = 0; node < layers_.size(); ++node) {
    if (!launches_in_run(node, batch)) continue;
    if (before && fused_group(node, batch) == nullptr && may_run_beside(*before, node, batch)) {
      const auto milliseconds = [&](bool beside) {
        const auto both = [&] { launch_in_run(*before, batch), launch(node, batch, beside); };
        return time_launches(stream_, both, {.runs = kRuns});
      };
      const size_t way = remembered_choice(
          fmt::format("{} images, {} behind {}", batch, described(node), described(*before)), {"apart", "beside"},
          [&] { return MeasuredChoice{milliseconds(true) < milliseconds(false) ? size_t{1} : 0}; });
      if (way == 1) layers_[node].beside.insert(batch);
    }
    before = node;
  }
}

}  // namespace octet
