#include "trainers/diverged.h"

#include <ATen/core/grad_mode.h>
#include <fmt/core.h>

#include <filesystem>

namespace octet {
namespace {

bool is_finite(const at::Tensor& tensor) { return tensor.isfinite().all().item<bool>(); }

}  // namespace

std::string kept_state(const Phase& phase) {
  const bool saved = std::filesystem::exists(phase.checkpoint);
  return saved ? "The last good state is kept in " + phase.checkpoint + ": continue with --resume"
               : "No state was saved yet";
}

Error diverged(const Phase& phase, const Position& position, const std::string& what, const std::string& where) {
  return promise_error(fmt::format(
      "phase {}, epoch {}, step {}: {}; first at {}. A lower learning_rate, a longer warmup_epochs or clip_gradient "
      "help. {}",
      phase.name, position.epoch + 1, position.step + 1, what, where, kept_state(phase)));
}

std::string first_non_finite_layer(const Phase& phase, const at::Tensor& x, const WalkMode& mode) {
  const at::NoGradGuard no_grad;
  const bool qat = phase.quantized != nullptr;
  const Graph& graph = qat ? phase.quantized->prepared().graph : *phase.graph;
  std::string found;
  walk(graph, *phase.weights, x, mode, {.weight = nullptr, .output = [&](int index, at::Tensor output) {
                                          if (!found.empty() || is_finite(output)) return output;
                                          const std::string& name = graph.nodes[index].name;
                                          found = "node '" + name + "'";
                                          const auto weight = phase.weights->find(name + ".weight");
                                          if (weight != phase.weights->end() && !is_finite(weight->second))
                                            found += ", its weights";
                                          return output;
                                        }});
  return found.empty() ? (qat ? "a fake quantizer" : "the loss itself") : found;
}

void require_finite(const Phase& phase, const Position& position) {
  try {
    if (phase.quantized != nullptr) phase.quantized->require_finite();
  } catch (const Error& error) {
    throw diverged(phase, position, "an observer met a value that is not finite", error.what());
  }
  for (const auto& [name, tensor] : *phase.weights) {
    if (!is_finite(tensor.detach())) {
      throw diverged(phase, position, "a weight is not finite", "weights '" + name + "'");
    }
  }
}

}  // namespace octet
