// SPDX-License-Identifier: Apache-2.0
#include "src/train/model/step_graph.h"

#if OCTET_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <exception>
#include <optional>
#endif

namespace octet {

#if OCTET_CUDA
struct StepGraph::Recording {
  std::optional<at::cuda::CUDAGraph> graph;  // with the memory of the step's activations and gradients

  void record(const std::function<void()>& launches) {
    // The memory of the warm-ups and of an earlier recording would stay allocated and unused.
    c10::cuda::CUDACachingAllocator::emptyCache();
    graph.emplace();
    // ThreadLocal: loader threads may go on allocating page-locked memory.
    graph->capture_begin(/*pool=*/{0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      launches();
    } catch (...) {
      abandon();
      throw;
    }
    graph->capture_end();
  }

  /// Ends the capture, without which the stream is unusable, and drops what was recorded.
  void abandon() {
    try {
      graph->capture_end();
    } catch (const std::exception&) {  // says that the recording failed, as the exception on its way does
    }
    graph.reset();
  }
};

StepGraph::StepGraph(bool capture) : recording_(capture ? std::make_unique<Recording>() : nullptr) {}

void StepGraph::run(int mode, const std::function<void()>& launches) {
  if (recording_ == nullptr) return launches();
  if (mode != mode_) {
    recording_->graph.reset();
    mode_ = mode;
    warm_ups_ = 0;
  }
  if (warm_ups_ < kWarmUps) {
    ++warm_ups_;
    return launches();
  }
  if (!recording_->graph) recording_->record(launches);
  recording_->graph->replay();
}
#else
struct StepGraph::Recording {};
StepGraph::StepGraph(bool) {}
void StepGraph::run(int, const std::function<void()>& launches) { launches(); }
#endif

StepGraph::~StepGraph() = default;

void StepGraph::forget() { recording_.reset(); }

}  // namespace octet
