// SPDX-License-Identifier: Apache-2.0
// A training step as one launch: recorded once as a CUDA graph, then replayed.
#pragma once

#include <functional>
#include <memory>

namespace octet {

/// Saves launches: a small network takes longer to launch its few hundred kernels than to run them.
class StepGraph {
 public:
  explicit StepGraph(bool capture);  ///< with false, and in a build without CUDA, run() only calls
  ~StepGraph();

  /// Runs a step. `launches` must do the same work on the same memory whenever `mode` is the same; it may allocate, but
  /// neither wait for the GPU nor read from it. In a new mode it is called for kWarmUps steps, in which cuDNN and
  /// others initialize, recorded in the next, and from then on replayed without being called.
  void run(int mode, const std::function<void()>& launches);

  void forget();  ///< releases the recording's memory; from now on run() only calls

  static constexpr int kWarmUps = 3;

 private:
  struct Recording;
  std::unique_ptr<Recording> recording_;  // null: not captured
  int mode_ = -1, warm_ups_ = 0;
};

}  // namespace octet
