// A step of learning as one launch: recorded once as a CUDA graph, then replayed.
#pragma once

#include <functional>
#include <memory>

namespace octet {

/// Small networks need longer to launch their few hundred kernels than to run them; a replayed graph does not.
class StepGraph {
 public:
  explicit StepGraph(bool capture);  ///< false, and always on the CPU: run() just calls
  ~StepGraph();

  /// Runs a step. `launches` does the same work on the same memory whenever `mode` is the same; it may allocate, but
  /// neither wait for the GPU nor read from it. In a new mode it is called for kWarmUps steps (cuDNN and others set
  /// themselves up), recorded in the next, and from then on replayed without being called.
  void run(int mode, const std::function<void()>& launches);

  void forget();  ///< gives back the memory of what is recorded; from now on run() just calls

  static constexpr int kWarmUps = 3;

 private:
  struct Recording;
  std::unique_ptr<Recording> recording_;  // null: not captured
  int mode_ = -1, warm_ups_ = 0;
};

}  // namespace octet
