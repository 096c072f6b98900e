// SPDX-License-Identifier: Apache-2.0
// What the user is told when training diverges or the GPU runs out of memory or fails, and how the cause is found.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/net/graph.h"
#include "trainers/gpu.h"
#include "trainers/loop/step.h"
#include "trainers/loop/train.h"
#include "trainers/loop/training_state.h"

namespace octet {

/// Returns "The last good state is kept in FILE: continue with --resume", or that there is none.
std::string kept_state(const Phase& phase);

/// What ends a phase whose numbers are not finite.
class Diverged : public Error {
 public:
  Diverged(const std::string& happened, const std::string& cure, int epoch)
      : Error(ExitCode::promise, happened + ". " + cure), happened_(happened), epoch_(epoch) {}
  const std::string& happened() const { return happened_; }  ///< what() without the cure
  int epoch() const { return epoch_; }                       ///< from 0

 private:
  std::string happened_;
  int epoch_;
};

/// Returns "phase float, epoch 2, step 17: training diverged: the loss is nan; first at node 'conv2'.
/// Lower train.learning_rate, now 0.1: COMMAND". what: "the loss is nan"; position.step: the step where it happened,
/// from 0.
Diverged diverged(const Phase& phase, const Position& position, const std::string& what, const std::string& where);

/// Returns where the float forward of x first gives NaN or infinity, as first_non_finite() (src/train/model/model.h)
/// names it; "a fake quantizer" in QAT or "the loss itself" if every output is finite.
std::string first_non_finite_layer(const Phase& phase, const at::Tensor& x, const WalkMode& mode);

/// Returns the node where the float forward of some training images overflows, as first_non_finite() names it, or "".
/// QAT needs this check: fake quantizers clip, so the loss stays finite even when the weights compute nothing useful.
std::string non_finite_output(const Phase& phase, const RunData& data);

/// Throws diverged() naming the first weight that is not finite, or the node where an observer on the GPU met such a
/// value, so that a bad state never replaces a good one. done: the position after the phase's last step.
void require_finite(const Phase& phase, const Position& done);

/// Returns Error(promise): "phase qat, epoch 2, step 17: <what>. The last good state is kept in ...".
Error failed(const Phase& phase, const Position& position, const std::string& what);

/// Returns Error(promise): "phase qat, validation after epoch 2: <what>. The last good state is kept in ...".
Error validation_failed(const Phase& phase, const Position& position, const std::string& what);

/// Returns Error(promise) with the phase, its batch size, the memory in use `then`, and a batch size that should fit.
/// fitting: that size; 0: none fits; empty: it could not be tried.
Error out_of_memory(const Phase& phase, const Position& position, const GpuMemory& then, std::optional<long> fitting);

/// The step that did not fit into the GPU's memory.
struct BatchProbe {
  Shape shape;                  ///< of an image
  std::vector<int64_t> labels;  ///< shape of one image's labels: labels_shape() of one
  long batch_size = 0;          ///< that did not fit
  long micro_batches = 1;       ///< batch sizes are multiples of it
  bool recorded = false;        ///< steps are recorded as a CUDA graph, whose memory cannot reuse cached blocks
  bool observes = false;        ///< quantizers follow the data
};
/// Returns a batch size that fits: estimated from the memory of two steps with few images, then tried as training would
/// run it. 0: not even few images fit; empty: a step failed for another reason. Call it while the batches that did not
/// fit are still on the GPU with all their buffers. The steps change weights, optimizer and buffers.
std::optional<long> batch_that_fits(TrainStep& step, const BatchProbe& probe);

}  // namespace octet
