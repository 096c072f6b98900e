// SPDX-License-Identifier: Apache-2.0
// One training step: forward, loss, backward, update. A step only launches work: nothing in it waits for a GPU, so that
// a CUDA graph can record it (src/train/model/step_graph.h). The sums of steps that the GPU has not finished yet reach
// the host a few steps later, without making the GPU wait.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/safetensors.h"
#include "src/train/model/device.h"
#include "src/train/model/model.h"
#include "src/train/qat/quantized_model.h"
#include "trainers/loop/gradients.h"
#include "trainers/loop/objective.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/train.h"
#include "trainers/parallel/ranks.h"
#include "trainers/parallel/stages.h"

namespace octet {

/// Distillation (Hinton et al., "Distilling the Knowledge in a Neural Network", arXiv 1503.02531): during QAT the
/// unchanged float network supplies what its outputs are, of a classifier the probability of every class, in addition
/// to the labels.
struct Teacher {
  Graph graph;
  Weights weights;  ///< a copy on the student's device, without gradients
  double weight = 0, temperature = 1;

  /// Returns (1 - weight) * loss + weight * objective.distill(outputs), of classes T^2 * KL(softmax(teacher / T) ||
  /// softmax(logits / T)), the mean over the batch. T^2 keeps the size of the gradient. images: those the student saw.
  /// Under autocast the teacher's outputs have the low precision, too.
  at::Tensor join(const at::Tensor& loss, const at::Tensor& logits, const at::Tensor& images,
                  const Objective& objective, const Objective::Whole& whole) const;
};

/// Returns a teacher with a copy of `weights`.
Teacher make_teacher(const Graph& graph, const Weights& weights, double weight, double temperature);

/// What is known once a step has ended. The sums are of the epoch, this step included.
struct StepTotals {
  long step = 0;                 ///< its number in the epoch, from 0
  double loss_sum = 0;           ///< of the batches' mean losses; not finite from the first such loss on
  double correct = 0;            ///< Objective::Judged::right
  double cross_entropy_sum = 0;  ///< loss_sum without label smoothing
  static constexpr int kSums = 3;
  double idle_seconds = 0;  ///< GPU: from the end of the step before to the first operator of this one
};

class TrainStep {
 public:
  /// Sets the memory format of phase.weights as the recipe says and creates the state of optimizer, scaler and average.
  explicit TrainStep(const Phase& phase);

  struct Mode {
    bool batch_norm_training = true, observe = true, box_l1 = false;
    int number() const { return (batch_norm_training ? 1 : 0) + (observe ? 2 : 0) + (box_l1 ? 4 : 0); }
  };

  /// Returns the number of what launch() launches, by which it is recorded as a CUDA graph.
  int launches(const Mode& mode) const;

  /// Sets what the next launches read: the learning rate and the number of the step in the phase. Sent to the device
  /// without waiting.
  void set(double learning_rate, long step);

  /// Launches a step. images: float [N, C, H, W]; labels: int64 [N, LabelWriter::shape()]. With ranks these are one
  /// of equal shares of a batch: gradients and sums are those of the whole batch; BatchNorm normalizes each share by
  /// itself and keeps the mean of the shares' statistics. After a loss that is not finite, weights and optimizer keep
  /// the values from before that step until begin_epoch(); BatchNorm's statistics, observers and averages may go on.
  /// Throws Error(promise) on the CPU when an observer meets NaN or infinity.
  void launch(const at::Tensor& images, const at::Tensor& labels, const Mode& mode);

  /// With parallel.stages: copies every stage from its owner to all ranks, whose copies of other stages are outdated.
  void take_from_owners();

  void begin_epoch(const StepTotals& totals);           ///< continues from these sums
  const at::Tensor& totals() const { return totals_; }  ///< float64 [StepTotals::kSums]
  at::Device device() const { return device_; }
  WeightAverage* average() { return average_ ? &*average_ : nullptr; }
  void free_gradients() { optimizer_.zero_gradients(); }

  /// Writes and reads the state of optimizer, average and scaler: all but weights and quantizers.
  void put_state(TensorFile& file) const;
  void restore_state(const TensorFile& file, const std::string& path);

 private:
  struct LossAndSums {
    at::Tensor loss;  // to be minimized
    at::Tensor sums;  // float64 [kSums], in the order of StepTotals
  };
  at::Tensor pass(const at::Tensor& images, const at::Tensor& labels, const Mode& mode);
  QuantizedModel::Mode quantized_mode(const Mode& mode) const;
  at::Tensor forward(const at::Tensor& x, const Mode& mode);
  LossAndSums loss_of(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& images,
                      const Mode& mode) const;
  at::Tensor scaled(const at::Tensor& loss) const { return scaler_ ? scaler_->scale(loss) : loss; }
  void begin_exchange(std::vector<at::Tensor> also, double share, const Mode& mode);
  void finish_exchange();
  at::Tensor finish_gradients(at::Tensor& sums);
  // With parallel.stages (staged_step.cpp):
  void start_stages();
  void start_replicas();
  at::Tensor staged_pass(const at::Tensor& images, const at::Tensor& labels, const Mode& mode);
  void agree(at::Tensor& sums, at::Tensor& found_inf, at::Tensor& norm) const;

  const Phase& phase_;
  const OptimizerRecipe& recipe_;
  const at::Device device_;
  const Precision precision_;
  const GatherShares gather_;  // empty without ranks
  Optimizer optimizer_;
  std::optional<WeightAverage> average_;
  std::optional<GradScaler> scaler_;
  std::optional<GradientExchange> exchange_;  // among the ranks, or replicas, that share each batch
  std::vector<GraphPart> parts_;              // with parallel.stages, like the next two
  std::optional<StagedPass> staged_;
  int replicas_ = 1;
  std::vector<at::Tensor> statistics_;         // BatchNorm's running means and variances of this rank's stage
  std::vector<at::Tensor> shared_statistics_;  // while they are exchanged
  at::Tensor totals_, scalars_;                // scalars: learning rate, the average's rate, learning rate of scales
};

/// Follows steps from their launch to their end. On a CPU a step has ended when it was launched. With ranks this
/// process ends if a step does not end in time (Ranks::Steps).
class StepsUnderWay {
 public:
  StepsUnderWay(at::Device device, Ranks* ranks);
  ~StepsUnderWay();

  void epoch_begins();
  void begins();  ///< call it before a launch: the next operator is the step's first
  /// totals: float64 [kSums], in the order of StepTotals. A GPU copies them to page-locked memory asynchronously.
  void was_launched(long step, const at::Tensor& totals);

  /// Returns the oldest step that has ended and was not returned yet. Waits for it if `wait` is set or if the host is
  /// kMaxAhead steps ahead of the GPU. Empty if none has ended or, with `wait`, if none is left.
  std::optional<StepTotals> next(bool wait);

  void epoch_ends() { due_.none_due(); }  ///< saving and validation may take any time

  static constexpr size_t kMaxAhead = 8;

 private:
  struct OnGpu;
  std::unique_ptr<OnGpu> gpu_;      // null on the CPU
  std::optional<StepTotals> done_;  // on the CPU: the step launched last, until it is returned
  Ranks::Steps due_;
};

}  // namespace octet
