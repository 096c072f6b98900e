// SPDX-License-Identifier: Apache-2.0
// A training step as one launch: recorded once as a CUDA graph, then replayed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace octet {

/// Saves launches: a small network takes longer to launch its few hundred kernels than to run them.
class StepGraph {
 public:
  explicit StepGraph(bool capture);  ///< with false, and in a build without CUDA, run() only calls
  ~StepGraph();

  /// Runs a step. `launches` must do the same work on the same memory whenever `mode` and `size` are the same; it may
  /// allocate, but neither wait for the GPU nor read from it. In a new mode it is called for kWarmUps steps, in which
  /// cuDNN and others initialize, recorded in the next, and from then on replayed without being called.
  ///
  /// size: how much a step works on, such as the pixels of its batch. Steps of several sizes may come in any order and
  /// have a recording each. All recordings share one memory, which is that of the largest: there are none before every
  /// size that came had its kWarmUps steps, and a size that is larger than those recorded is recorded before them.
  void run(int mode, const std::function<void()>& launches, int64_t size = 0);

  void forget();  ///< releases the recordings' memory; from now on run() only calls

  static constexpr int kWarmUps = 3;

 private:
  struct Recordings;
  std::unique_ptr<Recordings> recordings_;  // null: not captured
};

}  // namespace octet
