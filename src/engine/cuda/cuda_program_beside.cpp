// CudaProgram: which convolutions run beside the kernel before them (kernels/cuda_overlap.h).
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "src/engine/cuda/cuda_program.h"
#include "src/engine/cuda/remembered_choice.h"
#include "src/engine/cuda/timing.h"

namespace octet {
namespace {

struct Bytes {
  const uint8_t* first;
  size_t count;
  bool meets(const Bytes& other) const { return first < other.first + other.count && other.first < first + count; }
};

}  // namespace

bool CudaProgram::may_run_beside(size_t before, size_t node, int batch) const {
  if (!layers_[node].step->can_run_beside(batch) || layers_[before].beside.contains(batch)) return false;
  const auto written = [&](size_t n) { return Bytes{layers_[n].output, layers_[n].image_bytes * batch}; };
  const auto read = [&](size_t n, const Bytes& bytes) {
    const std::vector<int>& inputs = graph_.nodes[n].inputs;  // none: an input node, which reads no node's memory
    return std::any_of(inputs.begin(), inputs.end(), [&](int input) { return written(input).meets(bytes); });
  };
  const auto read_before = [&](const Bytes& bytes) {
    const CudaGroup* group = fused_group(before, batch);
    if (group == nullptr) return read(before, bytes);
    const std::vector<int>& nodes = group->group().nodes;
    return std::any_of(nodes.begin(), nodes.end(), [&](int n) { return read(n, bytes); });
  };
  return !written(before).meets(written(node)) && !read_before(written(node)) && !read(node, written(before));
}

// When all groups have been chosen: what is launched before a node is known.
void CudaProgram::choose_beside(int batch) {
  constexpr int kRuns = 7;
  // What is launched at a node, and how much it reads and writes.
  const auto described = [&](size_t node) {
    const CudaGroup* group = fused_group(node, batch);
    std::string all = group != nullptr ? group->fused(batch)->kernel(batch) : layers_[node].step->kernel(batch);
    const auto add = [&](const Int8Node& n) { all += fmt::format(" {}x{}x{}", n.shape.c, n.shape.h, n.shape.w); };
    add(graph_.nodes[node]);
    for (const int input : graph_.nodes[group != nullptr ? group->first() : node].inputs) add(graph_.nodes[input]);
    return all;
  };
  std::optional<size_t> before;
  for (size_t node = 0; node < layers_.size(); ++node) {
    if (!launches_in_run(node, batch)) continue;
    if (before && fused_group(node, batch) == nullptr && may_run_beside(*before, node, batch)) {
      const auto milliseconds = [&](bool beside) {
        const auto both = [&] { launch_in_run(*before, batch), launch(node, batch, beside); };
        return time_launches(stream_, both, {.runs = kRuns});
      };
      const size_t way =
          remembered_choice(fmt::format("{} images, {} behind {}", batch, described(node), described(*before)),
                            {"apart", "beside"}, [&] { return milliseconds(true) < milliseconds(false) ? 1 : 0; });
      if (way == 1) layers_[node].beside.insert(batch);
    }
    before = node;
  }
}

}  // namespace octet
