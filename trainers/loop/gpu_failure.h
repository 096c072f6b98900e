// What the user is told when the GPU runs out of memory or fails, and what to do.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "src/common/error.h"
#include "src/graph/graph.h"
#include "trainers/gpu.h"
#include "trainers/loop/step.h"
#include "trainers/loop/training_state.h"

namespace octet {

/// Error(promise): "phase qat, epoch 2, step 17: <what>. The last good state is kept in ...: continue with --resume".
Error failed(const Phase& phase, const Position& position, const std::string& what);

/// Error(promise): the phase, its batch size, what was in use `then`, and a batch size that should fit (0: none does;
/// nothing: it could not be tried).
Error out_of_memory(const Phase& phase, const Position& position, const GpuMemory& then, std::optional<long> fitting);

/// Error(promise): "phase qat, validation after epoch 2: <what>. The last good state is kept in ...".
Error validation_failed(const Phase& phase, const Position& position, const std::string& what);

/// In a handler: throws the current exception again. What LibTorch throws becomes an Error(promise) without its
/// backtrace, and running out of memory says what to lower. (Phases and programs say more about their own failures.)
[[noreturn]] void rethrow_explained();

/// Runs a command's work; what it throws is rethrow_explained().
template <typename Work>
auto explain_failures(const Work& work) {
  try {
    return work();
  } catch (const std::exception&) {
    rethrow_explained();
  }
}

struct BatchProbe {
  Shape shape;                  ///< of an image
  std::vector<int64_t> labels;  ///< shape of one image's: labels_shape(data, 1)
  long batch_size = 0;          ///< that did not fit
  long micro_batches = 1;       ///< of which batch sizes are multiples
  bool recorded = false;  ///< steps are recorded as a CUDA graph, whose memory shares nothing with what lies cached
  bool observes = false;  ///< quantizers follow the data
};
/// Estimated from the memory of two steps with few images, then tried as training would; 0: not even they fit; nothing:
/// a step failed otherwise. Call it while the batches that did not fit, with all their buffers, still lie on the GPU:
/// smaller ones take less. The steps change weights, optimizer and buffers.
std::optional<long> batch_that_fits(TrainStep& step, const BatchProbe& probe);

}  // namespace octet
