#include "src/engine/cuda/cuda_group.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "src/engine/cuda/fastest_candidate.h"
#include "src/engine/cuda/remembered_choice.h"
#include "src/engine/cuda/timing.h"

namespace octet {
namespace {

constexpr CandidateSearch kSearch{.slow_ratio = 2, .milliseconds = 120};
constexpr int kRuns = 7;

std::string described(const Int8Node& n) {
  const Window& w = n.window;
  return fmt::format("{} {} {} {}, {} {}, {}x{} by {} {} at {} {}, {} groups, {} inputs", int8_op_name(n.op), n.shape.c,
                     n.shape.h, n.shape.w, n.out.is_signed(), n.out.zero_point != 0, w.kernel_h, w.kernel_w, w.stride_h,
                     w.stride_w, w.pad.top, w.pad.left, n.groups, n.inputs.size());
}

}  // namespace

CudaGroup::CudaGroup(const Int8Graph& graph, NodeGroup nodes) : group_(std::move(nodes)) {
  description_ =
      fmt::format("{} behind {}", group_name(group_.kind), described(graph.nodes[graph.nodes[first()].inputs[0]]));
  for (const int node : group_.nodes) description_ += "; " + described(graph.nodes[node]);
}

void CudaGroup::choose(GroupProblem problem, WorkSpace& work, const Stream& stream) {
  std::vector<std::unique_ptr<CudaStep>> ways = std::move(problem.candidates);
  std::vector<std::string> names;
  for (const auto& way : ways) names.push_back(way->kernel(problem.images));
  if (!problem.always || ways.empty()) {
    ways.insert(ways.begin(), nullptr);
    names.insert(names.begin(), problem.separate_kernels);
  }
  const auto make_ready = [&](CudaStep& step) {
    step.prepare(problem.fused(), stream);
    work.make_room(step, problem.images, stream);
  };
  const auto time = [&](size_t way, double slow_ms) {
    const LaunchTiming timing{.runs = kRuns, .slow_ms = slow_ms};
    CudaStep* step = ways[way].get();
    if (step == nullptr) return time_launches(stream, problem.run_separate, timing);
    make_ready(*step);
    return time_launches(
        stream, [&] { step->launch(problem.fused(), stream.get()); }, timing);
  };
  const size_t way = remembered_choice(fmt::format("{} images of {}", problem.images, description_), names,
                                       [&] { return fastest_candidate(names, kSearch, time); });
  std::unique_ptr<CudaStep> step = std::move(ways[way]);
  if (step) {
    make_ready(*step);
    step->launch(problem.fused(), stream.get());
    stream.wait("its first run on the GPU, together with the nodes before it");
  }
  chosen_[problem.images] = std::move(step);
}

const CudaStep* CudaGroup::fused(int images) const {
  const auto found = chosen_.find(images);
  return found == chosen_.end() ? nullptr : found->second.get();
}

size_t CudaGroup::constant_bytes() const {
  return std::accumulate(chosen_.begin(), chosen_.end(), size_t{0}, [](size_t bytes, const auto& chosen) {
    return bytes + (chosen.second ? chosen.second->constant_bytes() : 0);
  });
}

}  // namespace octet
