// SPDX-License-Identifier: Apache-2.0
#include "src/train/model/step_graph.h"

#if OCTET_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <exception>
#include <map>
#endif

namespace octet {

#if OCTET_CUDA
struct StepGraph::Recordings {
  int mode = -1;
  std::map<int64_t, int> steps;                   // of each size that came, up to the first that may be recorded
  std::map<int64_t, at::cuda::CUDAGraph> graphs;  // by size, with the memory of a step's activations and gradients

  void begin_mode(int next) {
    graphs.clear();
    steps.clear();
    mode = next;
  }

  /// Counts a step of that size, and returns whether it may be recorded or replayed.
  bool is_warm(int64_t size) {
    if (int& own = steps[size]; own <= kWarmUps) ++own;
    return std::all_of(steps.begin(), steps.end(), [](const auto& of_size) { return of_size.second > kWarmUps; });
  }

  /// Records a step and returns its graph. Smaller ones find the memory of a larger one free, since no step reads what
  /// another allocated; a larger one would take memory of its own beside theirs.
  at::cuda::CUDAGraph& record(const std::function<void()>& launches, int64_t size) {
    if (!graphs.empty() && size > graphs.rbegin()->first) graphs.clear();
    // The memory of the warm-ups and of earlier recordings would stay allocated and unused.
    c10::cuda::CUDACachingAllocator::emptyCache();
    const at::cuda::MempoolId_t pool = graphs.empty() ? at::cuda::MempoolId_t{0, 0} : graphs.begin()->second.pool();
    at::cuda::CUDAGraph& graph = graphs[size];
    // ThreadLocal: loader threads may go on allocating page-locked memory.
    graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      launches();
    } catch (...) {
      abandon(size);
      throw;
    }
    graph.capture_end();
    return graph;
  }

  /// Ends the capture, without which the stream is unusable, and drops what was recorded.
  void abandon(int64_t size) {
    try {
      graphs[size].capture_end();
    } catch (const std::exception&) {  // says that the recording failed, as the exception on its way does
    }
    graphs.erase(size);
  }
};

StepGraph::StepGraph(bool capture) : recordings_(capture ? std::make_unique<Recordings>() : nullptr) {}

void StepGraph::run(int mode, const std::function<void()>& launches, int64_t size) {
  if (recordings_ == nullptr) return launches();
  Recordings& all = *recordings_;
  if (mode != all.mode) all.begin_mode(mode);
  if (!all.is_warm(size)) {
    all.graphs.clear();  // their memory beside that of this step would be twice as much
    return launches();
  }
  const auto known = all.graphs.find(size);
  (known != all.graphs.end() ? known->second : all.record(launches, size)).replay();
}
#else
struct StepGraph::Recordings {};
StepGraph::StepGraph(bool) {}
void StepGraph::run(int, const std::function<void()>& launches, int64_t) { launches(); }
#endif

StepGraph::~StepGraph() = default;

void StepGraph::forget() { recordings_.reset(); }

}  // namespace octet
