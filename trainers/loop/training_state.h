// The state file of a phase: everything a resumed run needs to continue to the same bits.
#pragma once

#include <string>

#include "src/tensor_files/safetensors.h"
#include "trainers/loop/optimizer.h"

namespace octet {

/// Where a phase stands. `step == steps of an epoch` means: all its steps are done, its validation may not be.
struct Position {
  int epoch = 0;
  long step = 0;  ///< done in this epoch
  bool finished = false;
  // Running sums of this epoch.
  double loss_sum = 0, cross_entropy_sum = 0;  ///< of the batches' means, with and without label smoothing
  double correct = 0;                          ///< pictures; of pixels' labels parts of them
  long seen = 0;
  double seconds = 0, waited_seconds = 0;
};

/// Whose state it is. A file of another run must never be continued.
struct StateOwner {
  std::string phase;        ///< "float", "qat"
  std::string fingerprint;  ///< hash of recipe and graph; in QAT of the starting weights too
};

/// Copies `tensors` into `file` as "<prefix>.<name>", row-major. dtypes f32, f64, i32, i64, u8, i8.
void put_tensors(TensorFile& file, const std::string& prefix, const NamedTensors& tensors);

/// Those tensors of `file` whose names start with "<prefix>.", without it.
NamedTensors get_tensors(const TensorFile& file, const std::string& prefix);

/// get_tensors() copied into existing tensors, which keep their storage and memory format. Throws Error(data) naming
/// `path` and the first tensor that is missing, unknown or of another shape or type.
void restore_tensors(const TensorFile& file, const std::string& prefix, const NamedTensors& targets,
                     const std::string& path);

/// restore_tensors() of "weights", refused as require_usable_weights() does.
void restore_weights(const TensorFile& file, const NamedTensors& targets, const std::string& path);

/// Adds position and owner to `file` (metadata "octet_state", a JSON document) and writes it atomically.
void write_state(const std::string& path, const StateOwner& owner, const Position& position, TensorFile file);

/// Throws Error(usage) when the file belongs to another phase, recipe or graph, Error(data) when it is damaged.
Position read_state(const std::string& path, const StateOwner& owner, TensorFile& file);

}  // namespace octet
