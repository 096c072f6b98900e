#include "trainers/loop/diverged.h"

#include <ATen/core/grad_mode.h>
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "src/data/loader.h"
#include "src/model/device.h"

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
  const std::string place = position.finished ? "after the last epoch"
                                              : fmt::format("epoch {}, step {}", position.epoch + 1, position.step + 1);
  const std::string section = phase.name == "float" ? "train" : "qat";
  const double rate = phase.recipe->learning_rate;
  const std::string anew =
      phase.anew.empty() ? "" : fmt::format(": {} --set {}.learning_rate={:g}", phase.anew, section, rate / 10);
  return promise_error(fmt::format(
      "phase {}, {}: training diverged: {}; first at {}. Lower {}.learning_rate, now {:g}{}. {}.warmup_epochs and "
      "{}.clip_gradient help, too",
      phase.name, place, what, where, section, rate, anew, section, section));
}

std::string first_non_finite_layer(const Phase& phase, const at::Tensor& x, const WalkMode& mode) {
  const bool qat = phase.quantized != nullptr;
  const std::string found =
      first_non_finite(qat ? phase.quantized->prepared().graph : *phase.graph, *phase.weights, x, mode);
  return !found.empty() ? found : qat ? "a fake quantizer" : "the loss itself";
}

std::string non_finite_output(const Phase& phase, const RunData& data) {
  constexpr size_t kPictures = 8;
  const std::vector<size_t> indices(data.train.begin(),
                                    data.train.begin() + static_cast<long>(std::min(kPictures, data.train.size())));
  Loader loader(*data.train_set, indices, data.evaluation_transform,
                {.batch_size = static_cast<int>(indices.size()), .workers = 0});
  Batch batch;
  loader.next(batch);
  const at::Tensor x = images_to_tensor({batch.images.data(), batch.size, phase.graph->nodes.front().shape}, data.mean,
                                        data.std, phase.device());
  const FullPrecision full;
  return first_non_finite(phase.trained_graph(), *phase.weights, x, {});
}

void require_finite(const Phase& phase, const Position& done) {
  Position position = done;
  position.step = std::max(0L, position.step - 1);
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
