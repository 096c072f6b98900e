// One training step: forward, loss, backward, update. Launches only: nothing in it waits for a GPU, so that a CUDA
// graph can record it (trainers/loop/step_graph.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "src/model/autocast.h"
#include "src/tensor_files/tensor_data.h"
#include "trainers/loop/average.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/precision.h"
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

  /// What the next launches read: learning rate and number of the step in the phase. Sent to the device without
  /// waiting.
  void set(double learning_rate, long step);

  /// images: float [N, C, H, W]; labels: int64 [N], or of pixels [N, H, W]. With ranks these are one of equal shares of
  /// a batch: gradients and sums are those of the whole; BatchNorm normalizes each share by itself and keeps the mean
  /// of their statistics. Once a loss is not finite, weights and optimizer stay as they were before that step until
  /// begin_epoch(); BatchNorm's statistics, observers and averages may move on. Throws Error(promise) on the CPU when
  /// an observer meets NaN or infinity.
  void launch(const at::Tensor& images, const at::Tensor& labels, const Mode& mode);

  void begin_epoch(const StepTotals& totals);
  const at::Tensor& totals() const { return totals_; }  ///< float64 [StepTotals::kSums]
  at::Device device() const { return device_; }
  WeightAverage* average() { return average_ ? &*average_ : nullptr; }
  void free_gradients() { optimizer_.zero_gradients(); }

  void put_state(TensorFile& file) const;
  void restore_state(const TensorFile& file, const std::string& path);

 private:
  at::Tensor forward(const at::Tensor& x, const Mode& mode);
  void share_with_ranks(at::Tensor& sums, const Mode& mode);
  at::Tensor finish_gradients();

  const Phase& phase_;
  const OptimizerRecipe& recipe_;
  const at::Device device_;
  const Precision precision_;
  const GatherShares gather_;  // of the ranks; null without
  Optimizer optimizer_;
  std::optional<WeightAverage> average_;
  std::optional<GradScaler> scaler_;
  std::vector<at::Tensor> statistics_;  // BatchNorm's running means and variances
  at::Tensor totals_, scalars_;         // scalars: learning rate, the average's rate, learning rate of scales
};

}  // namespace octet
