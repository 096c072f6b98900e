#include "trainers/loop/diverged.h"

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
  const bool qat = phase.quantized != nullptr;
  const std::string found =
      first_non_finite(qat ? phase.quantized->prepared().graph : *phase.graph, *phase.weights, x, mode);
  return !found.empty() ? found : qat ? "a fake quantizer" : "the loss itself";
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
