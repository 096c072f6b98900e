// SPDX-License-Identifier: Apache-2.0
// The training loop. One loop trains the float phase, the QAT phase and the float control; they differ in the forward
// function of the step (trainers/loop/step.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/progress.h"
#include "src/quant/calibrate.h"
#include "src/recipe/recipe.h"
#include "src/recipe/run.h"
#include "src/train/model/model.h"
#include "src/train/qat/quantized_model.h"
#include "trainers/loop/optimizer.h"
#include "trainers/parallel/ranks.h"

namespace octet {

class Objective;  // trainers/loop/objective.h
struct Teacher;   // trainers/loop/step.h

/// What the loop reports after an epoch. Losses and accuracy are means over the epoch's batches in training mode.
struct EpochResult {
  int epoch = 0;  ///< from 0
  bool validate =
      true;  ///< it is this epoch's turn (OptimizerRecipe::val_interval, Phase::validates_first), or the phase's last
  double train_loss = 0;
  double train_top1 = 0;             ///< in 0..1; pixels: the share that is right; boxes: the mean IoU
  std::optional<double> first_loss;  ///< cross-entropy of the phase's first step; empty if its state file has none
  double train_cross_entropy = 0;    ///< train_loss without label smoothing, comparable with a validation loss
  double learning_rate = 0;          ///< of the last step
  double images_per_second = 0, seconds = 0;
  /// With ranks: the share of the epoch's time spent waiting for exchanges, and so for slower ranks. With stages on
  /// GPUs it adds up two streams and may exceed 1.
  double exchange_share = 0;
  double data_wait_share = 0;   ///< share of the time spent waiting for batches; on a GPU all time between steps
  size_t gpu_memory_bytes = 0;  ///< peak of LibTorch's allocator in the epoch; 0 on the CPU
};

/// Phase::epoch_done throws this when the loss on the validation images is not finite; the phase reports divergence.
class NotFinite : public Error {
 public:
  explicit NotFinite(const std::string& what) : Error(ExitCode::promise, what) {}
};

/// One phase of a training: "float", "qat" or "float_control". It trains the weights in place, on the device where they
/// are, and starts from `checkpoint` if that file exists and `resume` is set.
struct Phase {
  std::string name;
  const OptimizerRecipe* recipe = nullptr;
  CudaRecipe cuda;                             ///< read on a GPU
  ParallelRecipe parallel;                     ///< read with ranks; with parallel.stages `graph` must be fused
  const Graph* graph = nullptr;                ///< the float network; also tells the kinds of parameters
  Weights* weights = nullptr;                  ///< in QAT the same tensors that `quantized` holds
  QuantizedModel* quantized = nullptr;         ///< null in a float phase
  std::shared_ptr<const Objective> objective;  ///< what is minimized; null: class_objective()
  const Teacher* teacher = nullptr;            ///< QAT with distillation: the float network; null: labels alone
  Ranks* ranks = nullptr;                      ///< the processes that share each batch; null: this process trains alone
  double scale_rate = 1;                       ///< learning rate of learned scales, as a multiple of the weights' rate
  double freeze_observers = 1.0;   ///< ranges stay fixed after this share of the steps; 0: they never follow the data
  double freeze_batch_norm = 1.0;  ///< BatchNorm's statistics stay fixed after this share of the steps
  uint64_t seed = 0;
  std::string images_of;    ///< the phase whose order and augmentation of images this one repeats; "": its own
  std::string fingerprint;  ///< hash of recipe and graph; a state file with another one is refused
  std::string anew;         ///< command that trains this phase anew into another folder, for messages; "": none
  std::string checkpoint;   ///< state file, written atomically beside the next epoch, and on Ctrl-C
  bool resume = false;
  bool validates_first = false;  ///< the first epoch is validated, too, where OptimizerRecipe::val_interval is above 1
  /// Called after each epoch. It validates if EpochResult::validate is set; with EMA the weights then hold the
  /// averages.
  std::function<void(const EpochResult&)> epoch_done;
  std::function<bool()> stop = interrupted;  ///< asked after each step

  /// Returns the graph that is trained: in QAT the prepared one with the nodes of the quantization plan.
  const Graph& trained_graph() const { return quantized != nullptr ? quantized->prepared().graph : *graph; }
  Weights learned_scales() const { return quantized != nullptr ? quantized->learned_scales() : Weights(); }
  at::Device device() const { return weights->begin()->second.device(); }
};

/// Runs the phase to its end, or only loads it if its state file is finished. The result depends on recipe, data and
/// seed alone, not on how often the phase was stopped and resumed. With EMA *weights holds the averaged weights at the
/// end, and observed ranges are those of the averaged network.
///
/// With ranks all of them call it with equal arguments. The first alone writes `checkpoint`; all of them read it. After
/// each epoch weights and quantizers must have the same bits on all ranks, else Error(promise) names the first tensor
/// that differs.
///
/// Throws Error(interrupted) after saving; Error(promise) naming phase, epoch, step and first layer when the loss, a
/// weight or, after an epoch, an output of the float network is not finite (the state file then still holds the last
/// good state); Error(usage) for a batch larger than the training set or the state file of another run.
void train_phase(const Phase& phase, const RunData& data);

// Observed ranges of the quantized network (observed_ranges.cpp), and how ranks agree on them. Training only follows
// them batch by batch; for averaged weights that are validated or exported they are read anew, in fp32.

/// Resets the observers and shows them the calibration images through the quantized network. Not for histogram
/// observers on a GPU.
void observe_again(QuantizedModel& model, const RunData& data, int batch_size);

/// Calls `body` while the ranges are those of observe_again(), then restores the observers.
void while_observed_again(QuantizedModel& model, const RunData& data, int batch_size,
                          const std::function<void()>& body);

/// Copies rank 0's weights and, if not null, quantizers to all ranks. Needed after each rank computed them from the
/// same images by itself, since sums on GPUs may differ in their last bits. Waits for busy ranks as long as they live.
void take_from_first(Ranks& ranks, const Weights& weights, QuantizedModel* quantized);

/// Adds the other ranks' statistics, of minmax or histogram observers, to each rank's observers. All ranks get the bits
/// of one rank that saw all images: counts are integers, and bins are a power of two wide.
void sum_histograms(Ranks& ranks, std::vector<Observer>& observers);

}  // namespace octet
