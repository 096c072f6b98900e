// One training step: forward, loss, backward, update. Launches only: nothing in it waits for a GPU, so that a CUDA
// graph can record it (src/model/step_graph.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "src/model/autocast.h"
#include "src/tensor_files/tensor_data.h"
#include "trainers/loop/average.h"
#include "trainers/loop/freeze_oscillating.h"
#include "trainers/loop/gradient_exchange.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/precision.h"
#include "trainers/loop/staged_pass.h"
#include "trainers/loop/stages.h"
#include "trainers/loop/totals.h"
#include "trainers/loop/train.h"

namespace octet {

class TrainStep {
 public:
  /// Lays phase.weights out as the recipe says and makes the state of optimizer, scaler and average beside them.
  explicit TrainStep(const Phase& phase);

  struct Mode {
    bool batch_norm_training = true, observe = true;
    int number() const { return (batch_norm_training ? 1 : 0) + (observe ? 2 : 0); }
  };

  /// What the next launches read: learning rate, number of the step in the phase and, where oscillating weights are
  /// frozen, the threshold. Sent to the device without waiting.
  void set(double learning_rate, long step, double freezing_threshold = 0);

  /// images: float [N, C, H, W]; labels: int64 [N], or of pixels [N, H, W]. With ranks these are one of equal shares of
  /// a batch: gradients and sums are those of the whole; BatchNorm normalizes each share by itself and keeps the mean
  /// of their statistics. Once a loss is not finite, weights and optimizer stay as they were before that step until
  /// begin_epoch(); BatchNorm's statistics, observers and averages may move on. Throws Error(promise) on the CPU when
  /// an observer meets NaN or infinity.
  void launch(const at::Tensor& images, const at::Tensor& labels, const Mode& mode);

  /// With parallel.stages: every rank gets what each has made of its own stage; before, its copy of the others' is old.
  void take_from_owners();

  void begin_epoch(const StepTotals& totals);
  const at::Tensor& totals() const { return totals_; }  ///< float64 [StepTotals::kSums]
  at::Device device() const { return device_; }
  WeightAverage* average() { return average_ ? &*average_ : nullptr; }
  const OscillationFreezer* freezer() const { return freezer_ ? &*freezer_ : nullptr; }
  void free_gradients() { optimizer_.zero_gradients(); }

  void put_state(TensorFile& file) const;
  void restore_state(const TensorFile& file, const std::string& path);

 private:
  struct Judged {
    at::Tensor loss;  // to be minimized
    at::Tensor sums;  // float64 [kSums], in the order of StepTotals
  };
  void start_stages();
  void start_replicas();
  at::Tensor pass(const at::Tensor& images, const at::Tensor& labels, const Mode& mode);
  at::Tensor staged_pass(const at::Tensor& images, const at::Tensor& labels, const Mode& mode);
  at::Tensor forward(const at::Tensor& x, const Mode& mode);
  Judged judge(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& x) const;
  at::Tensor scaled(const at::Tensor& loss) const { return scaler_ ? scaler_->scale(loss) : loss; }
  void begin_exchange(std::vector<at::Tensor> also, double share, const Mode& mode);
  void finish_exchange();
  void agree(at::Tensor& sums, at::Tensor& found_inf, at::Tensor& norm) const;
  at::Tensor finish_gradients(at::Tensor& sums);

  const Phase& phase_;
  const OptimizerRecipe& recipe_;
  const at::Device device_;
  const Precision precision_;
  const GatherShares gather_;  // of the ranks; null without
  Optimizer optimizer_;
  std::optional<WeightAverage> average_;
  std::optional<GradScaler> scaler_;
  std::optional<GradientExchange> exchange_;  // with ranks, or replicas, that share each batch
  std::vector<GraphPart> parts_;              // with parallel.stages
  std::optional<StagedPass> staged_;
  int replicas_ = 1;  // of the cut network
  std::optional<OscillationFreezer> freezer_;
  std::vector<at::Tensor> statistics_;         // BatchNorm's running means and variances, of this rank's stage
  std::vector<at::Tensor> shared_statistics_;  // on their way
  at::Tensor totals_, scalars_;  // scalars: learning rate, the average's rate, learning rate of scales, threshold
};

}  // namespace octet
