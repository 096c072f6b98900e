#include "src/model/step_graph.h"

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
    // The warm-ups' memory, and that of an earlier recording, would lie unused beside this one's.
    c10::cuda::CUDACachingAllocator::emptyCache();
    graph.emplace();
    // thread_local: loader threads may go on allocating page-locked memory.
    graph->capture_begin(/*pool=*/{0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      launches();
    } catch (...) {
      abandon();
      throw;
    }
    graph->capture_end();
  }

  /// The stream must leave its capture, or nothing works on it any more; what is recorded is useless.
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
