#include "trainers/run/distill_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "src/common/interrupt.h"
#include "src/common/progress.h"
#include "src/qat/reconstruct/distill.h"
#include "trainers/gpu.h"

namespace octet {
namespace {

/// Batch after batch, epoch after epoch.
class AugmentedPictures {
 public:
  explicit AugmentedPictures(const Run& run) : run_(run) {
    const size_t images = run.data.calibration.size();
    options_ = {.batch_size = static_cast<int>(std::min<size_t>(run.recipe.calibrate.batch_size, images)),
                .train = true,
                .seed = run.recipe.seed,
                .workers = run.data.workers};
  }

  at::Tensor next() {
    const RunData& data = run_.data;
    while (!loader_ || !loader_->next(batch_)) {
      loader_.emplace(*data.train_set, data.calibration, data.train_transform, options_);
      ++options_.epoch;
    }
    return images_to_tensor({batch_.images.data(), batch_.size, run_.graph.nodes.front().shape}, data.mean, data.std,
                            run_.device);
  }

 private:
  const Run& run_;
  LoaderOptions options_;
  std::optional<Loader> loader_;
  Batch batch_;
};

}  // namespace

void distill_model(QuantizedModel& model, const Run& run, const Weights& floats) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  const DistillPlan plan{.steps = recipe.distill_steps,
                         .rate = recipe.distill_learning_rate,
                         .temperature = recipe.distill_temperature,
                         .tf32 = run.recipe.cuda.tf32};
  const OwnStream stream(run.device);
  AugmentedPictures pictures(run);
  Progress progress("distill", plan.steps, "steps");
  long step = 0;
  const auto next = [&] {
    progress.update(step++);
    throw_if_interrupted();
    return pictures.next();
  };
  const Distilled result = distill(model, floats, next, plan);
  progress.update(step);
  say(fmt::format(
      "distill: {:.1f} % of the codes moved; loss of the first tenth of the steps {:.4f}, of the last {:.4f}",
      100.0 * static_cast<double>(result.moved) / static_cast<double>(result.weights), result.first, result.last));
}

}  // namespace octet
