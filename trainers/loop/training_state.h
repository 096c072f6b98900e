// SPDX-License-Identifier: Apache-2.0
// The state file of a phase: everything that a resumed run needs to end with the same bits.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <thread>

#include "src/base/safetensors.h"
#include "trainers/loop/optimizer.h"

namespace octet {

/// Where a phase stands. If `step` is the number of steps in an epoch, all of them are done, but perhaps not
/// validation.
struct Position {
  int epoch = 0;
  long step = 0;  ///< steps done in this epoch
  bool finished = false;
  // Running sums of this epoch:
  double loss_sum = 0, cross_entropy_sum = 0;  ///< of the batches' means, with and without label smoothing
  double correct = 0;                          ///< images classified correctly; with pixels' labels fractions of images
  long seen = 0;                               ///< images
  double seconds = 0, waited_seconds = 0;
  std::optional<double> first_loss;  ///< cross-entropy of the phase's first step; older states do not have it
};

/// Tells which training a state belongs to. A file of another run must never be continued.
struct StateOwner {
  std::string phase;        ///< "float", "qat"
  std::string fingerprint;  ///< hash of recipe and graph, in QAT of the starting weights, too
};

/// Copies `tensors` into `file` as "<prefix>.<name>", row-major. Types: f32, f64, i32, i64, u8, i8.
void put_tensors(TensorFile& file, const std::string& prefix, const NamedTensors& tensors);

/// Returns the tensors of `file` whose names start with "<prefix>.", named without it.
NamedTensors get_tensors(const TensorFile& file, const std::string& prefix);

/// Copies get_tensors() into existing tensors, which keep their storage and memory format. Throws Error(data) naming
/// `path` and the first tensor that is missing, unknown or of another shape or type.
void restore_tensors(const TensorFile& file, const std::string& prefix, const NamedTensors& targets,
                     const std::string& path);

/// Restores the tensors "weights.*". Throws as restore_tensors() and require_usable_weights() do.
void restore_weights(const TensorFile& file, const NamedTensors& targets, const std::string& path);

/// Adds position and owner to `file` (metadata "octet_state", a JSON document) and writes it atomically.
void write_state(const std::string& path, const StateOwner& owner, const Position& position, TensorFile file);

/// Writes states on a thread of its own, one after the other, while training goes on.
class StateWriter {
 public:
  StateWriter() = default;
  ~StateWriter() { settle(); }
  StateWriter(const StateWriter&) = delete;
  StateWriter& operator=(const StateWriter&) = delete;

  /// Begins write_state() once the one before has ended. Throws what that one threw.
  void write(const std::string& path, const StateOwner& owner, const Position& position, TensorFile file);
  void wait();    ///< until the last state is written; throws what its write_state() threw
  void settle();  ///< until nothing is being written any more; the next write() or wait() throws what that threw

 private:
  std::thread thread_;
  std::exception_ptr error_;  // written by the thread, read once it has ended
};

/// Waits until no StateWriter of this process is writing; for a thread that ends the process without its destructors.
void wait_for_states();

/// Reads a state file. Throws Error(usage) if it belongs to another phase, recipe or graph, Error(data) if it is
/// damaged.
Position read_state(const std::string& path, const StateOwner& owner, TensorFile& file);

}  // namespace octet
