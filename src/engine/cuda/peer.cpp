#include "src/engine/cuda/peer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/common/error.h"
#include "src/engine/support.h"

namespace octet {
namespace {

constexpr const char* kSigned = "quant.activation: symmetric_s8 in the recipe, --activation symmetric_s8 for bench";
constexpr const char* kMix =
    "engine cuda can run such nodes: evaluate.fallback: cuda in the recipe, --fallback cuda for bench and run; "
    "octet_load takes engine cuda for the whole network";

std::string edge_fault(const Int8Node& node, const char* what, const std::string& library) {
  if (!node.out.is_signed())
    return fmt::format("{} has uint8 codes; {} multiplies int8 by int8 ({})", what, library, kSigned);
  if (node.out.zero_point != 0)
    return fmt::format("{} has zero point {}; {} pads with 0 ({})", what, node.out.zero_point, library, kSigned);
  return "";
}

}  // namespace

std::string peer_fault(const Int8Graph& graph, int node, const std::string& library) {
  const Int8Node& n = graph.nodes[node];
  if (n.op != Int8Op::conv2d && n.op != Int8Op::linear)
    return fmt::format("{}: {} runs conv2d and linear here", int8_op_name(n.op), library);
  std::string fault = edge_fault(graph.nodes[n.inputs[0]], "its input", library);
  if (fault.empty() && n.inputs.size() > 1) fault = edge_fault(graph.nodes[n.inputs[1]], "its residual", library);
  if (fault.empty() && !n.float_output) fault = edge_fault(n, "its output", library);
  return fault;
}

void check_peer(const Engine& engine, const Int8Graph& graph, const CompileOptions& options,
                const std::vector<std::string>& kernels) {
  const bool mixes = options.fallback == "cuda";
  if (!mixes && options.fallback != "none")
    throw usage_error(
        fmt::format("engine {}: unknown fallback '{}'; allowed: none, cuda", engine.name(), options.fallback));
  if (std::find(kernels.begin(), kernels.end(), options.kernels) == kernels.end())
    throw usage_error(fmt::format("engine {}: unknown kernels '{}'; allowed: {}", engine.name(), options.kernels,
                                  fmt::join(kernels, ", ")));
  check_compile(engine, graph, options, {mixes ? &find_engine("cuda") : nullptr, mixes ? "" : kMix});
}

CudaGroupFactory fallback_groups(const Engine& peer) {
  return [&peer, kernels = cuda_group_steps("auto")](const Lowering& lowering, const NodeGroup& group) {
    const bool has_own = std::any_of(group.nodes.begin(), group.nodes.end(),
                                     [&](int node) { return peer.supports(lowering.graph, node).ok; });
    return has_own ? GroupKernels() : kernels(lowering, group);
  };
}

}  // namespace octet
