// The visible training loop. One loop serves the float and the QAT phase: what differs is the forward function.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/common/interrupt.h"
#include "src/model/model.h"
#include "src/qat/quantized_model.h"
#include "src/recipe/recipe.h"
#include "src/run/run_data.h"
#include "trainers/loop/distill.h"
#include "trainers/loop/freeze_oscillating.h"
#include "trainers/ranks/ranks.h"

namespace octet {

struct EpochResult {
  int epoch = 0;                          ///< from 0
  double train_loss = 0, train_top1 = 0;  ///< means over the epoch's batches, in training mode; top1 in 0..1, of
                                          ///< pixels' labels the share of those
  std::optional<double> first_loss;       ///< cross-entropy of the phase's first step; none: done by another process
  double train_cross_entropy = 0;         ///< train_loss without label smoothing, as a validation loss is
  double learning_rate = 0;               ///< of the last step
  double images_per_second = 0, seconds = 0;
  double exchange_share = 0;   ///< with ranks: waiting for exchanges, and so for slower ranks, beside the epoch's time;
                               ///< of stages on GPUs the sum over two streams, which may pass 1
  double data_wait_share = 0;  ///< GPU: between steps; a batch's augmentation there counts as waiting
  size_t gpu_memory_bytes = 0;  ///< the most that LibTorch's allocator held in the epoch; 0 on the CPU
};

/// What Phase::epoch_done throws when the loss on the validation images is not finite: the phase says that it diverged.
class NotFinite : public Error {
 public:
  explicit NotFinite(const std::string& what) : Error(ExitCode::promise, what) {}
};

/// A phase ("float", "qat" or "float_control"): trains weights in place and where they are, from `checkpoint` if that
/// file exists and `resume` is set.
struct Phase {
  std::string name;
  const OptimizerRecipe* recipe = nullptr;
  CudaRecipe cuda;                                         ///< of a phase on the GPU
  ParallelRecipe parallel;                                 ///< of a phase with ranks; with stages `graph` is fused
  const Graph* graph = nullptr;                            ///< of a float forward, and for parameter kinds
  Weights* weights = nullptr;                              ///< in QAT the very tensors that `quantized` shares
  QuantizedModel* quantized = nullptr;                     ///< null in a float phase
  const Teacher* teacher = nullptr;                        ///< QAT: of whom it learns, too; null: labels alone
  Ranks* ranks = nullptr;                                  ///< that share each batch; null: this process trains alone
  double scale_rate = 1;                                   ///< learned scales: their learning rate over the weights'
  double alpha_decay = 0;                                  ///< of learned clipping levels
  FreezingThreshold freezing;                              ///< QAT: of oscillating weights; not with EMA
  double freeze_observers = 1.0, freeze_batch_norm = 1.0;  ///< after this share of the steps; 0: never follow
  long reestimate_batch_norm = 0;                          ///< QAT: over so many images after the last step; 0: not
  uint64_t seed = 0;
  std::string pictures_of;  ///< the phase whose order and augmentation of pictures this one repeats; "": its own
  std::string fingerprint;  ///< of recipe and graph: a state file with another one is refused
  std::string anew;         ///< the command that trains from where the phase begins into another folder; "": not said
  std::string checkpoint;   ///< state file, written atomically after each epoch and on Ctrl-C
  bool resume = false;
  std::function<void(const EpochResult&)> epoch_done;  ///< validation and metrics; with EMA it sees the averages
  std::function<bool()> stop = interrupted;            ///< asked after each step

  /// What is walked, in QAT with the plan's nodes.
  const Graph& trained_graph() const { return quantized != nullptr ? quantized->prepared().graph : *graph; }
  Weights learned_scales() const { return quantized != nullptr ? quantized->learned_scales() : Weights(); }
  at::Device device() const { return weights->begin()->second.device(); }
};

/// Runs the phase to its end; a finished one is only loaded. The result depends on recipe, data and seed alone, not on
/// how often it was stopped and resumed. With EMA on, the averaged weights are in *weights at the end; observed ranges
/// are then theirs.
/// With ranks every one calls it alike; the first alone writes `checkpoint`, which all of them read. After each epoch
/// weights and quantizers must have the same bits everywhere: Error(promise) naming the first that has not.
/// Throws Error(interrupted) after saving; Error(promise) naming phase, epoch, step and first layer when the loss, a
/// weight or, after an epoch, an output of the float network is not finite (the state file then still holds the last
/// good state); Error(usage) for a batch larger than the training set or a state file of another run.
void train_phase(const Phase& phase, const RunData& data);

}  // namespace octet
