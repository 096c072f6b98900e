#include "trainers/diverged.h"

#include <ATen/ops/isfinite.h>
#include <fmt/core.h>

#include <filesystem>

namespace octet {

Error diverged(const Phase& phase, const Position& position, const std::string& what, const std::string& where) {
  const bool saved = std::filesystem::exists(phase.checkpoint);
  return promise_error(fmt::format(
      "phase {}, epoch {}, step {}: {}; first at {}. A lower learning_rate, a longer warmup_epochs or clip_gradient "
      "help. {}",
      phase.name, position.epoch + 1, position.step + 1, what, where,
      saved ? "The last good state is kept in " + phase.checkpoint : "No state was saved yet"));
}

std::string first_non_finite_layer(const Phase& phase, const at::Tensor& x) {
  const bool qat = phase.quantized != nullptr;
  const Graph& graph = qat ? phase.quantized->prepared().graph : *phase.graph;
  const std::string found = first_non_finite(graph, *phase.weights, x, {.training = true, .batch_norm_training = true});
  return found.empty() ? (qat ? "a fake quantizer" : "the loss itself") : found;
}

void require_finite_weights(const Phase& phase, const Position& position) {
  for (const auto& [name, tensor] : *phase.weights) {
    if (!tensor.detach().isfinite().all().item<bool>()) {
      throw diverged(phase, position, "a weight is not finite", "weights '" + name + "'");
    }
  }
}

}  // namespace octet
