// SPDX-License-Identifier: Apache-2.0
#include "src/train/model/step_graph.h"

#if OCTET_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <exception>
#endif

#include <algorithm>

namespace octet {

StepPlans::Plan StepPlans::next(int64_t size, const std::function<bool(double times)>& has_room) {
  const int64_t largest = recorded_.empty() ? 0 : *recorded_.rbegin();
  Plan plan;
  if (int& launched = launched_[size]; launched < warm_ups_) {
    ++launched;
    plan.drop = !recorded_.empty() && (cramped_ || !has_room(static_cast<double>(size) / static_cast<double>(largest)));
    cramped_ |= plan.drop;
  } else if (recorded_.contains(size)) {
    plan.step = Plan::Step::replay;
  } else if (!cramped_ || all_warm()) {
    plan = {Plan::Step::record, !recorded_.empty() && size > largest};
  }
  if (plan.drop) recorded_.clear();
  if (plan.step == Plan::Step::record) recorded_.insert(size);
  return plan;
}

bool StepPlans::all_warm() const {
  return std::all_of(launched_.begin(), launched_.end(),
                     [this](const auto& of_size) { return of_size.second >= warm_ups_; });
}

#if OCTET_CUDA
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;
constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

}  // namespace

struct StepGraph::Recordings {
  explicit Recordings(bool alone_) : alone(alone_), plans(kWarmUps, alone_) {}

  const bool alone;
  int mode = -1;
  StepPlans plans;
  std::map<int64_t, at::cuda::CUDAGraph> graphs;  // by size, with the memory of a step's activations and gradients
  int64_t bytes = 0;                              // of that memory

  void begin_mode(int next) {
    drop();
    plans = StepPlans(kWarmUps, alone);
    mode = next;
  }

  void drop() {
    graphs.clear();
    bytes = 0;
  }

  static allocator::DeviceStats statistics() { return allocator::getDeviceStats(c10::cuda::current_device()); }

  /// Returns whether the GPU has `times` the recordings' memory beside them: free, or held by the allocator for
  /// launched steps.
  bool has_room(double times) const {
    constexpr double kGaps = 1.1;  // pieces of memory that are too small for what is asked for
    const allocator::DeviceStats now = statistics();
    const int64_t unused = now.reserved_bytes[kAll].current - now.active_bytes[kAll].current - bytes;
    size_t free = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return static_cast<double>(free) + static_cast<double>(std::max(unused, int64_t{0})) >
           kGaps * times * static_cast<double>(bytes);
  }

  /// Records a step and returns its graph.
  at::cuda::CUDAGraph& record(const std::function<void()>& launches, int64_t size) {
    // The memory of launched steps and of dropped recordings would stay allocated and unused.
    allocator::emptyCache();
    const int64_t before = statistics().reserved_bytes[kAll].current;
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
    bytes += statistics().reserved_bytes[kAll].current - before;
    return graph;
  }

  /// Ends the capture, without which the stream is unusable, and drops what was recorded.
  void abandon(int64_t size) {
    try {
      graphs[size].capture_end();
    } catch (const std::exception&) {  // says that the recording failed, as the exception on its way does
    }
    graphs.erase(size);
    plans.failed(size);
  }
};

StepGraph::StepGraph(bool capture, bool alone) : recordings_(capture ? std::make_unique<Recordings>(alone) : nullptr) {}

void StepGraph::run(int mode, const std::function<void()>& launches, int64_t size) {
  if (recordings_ == nullptr) return launches();
  Recordings& all = *recordings_;
  if (mode != all.mode) all.begin_mode(mode);
  const StepPlans::Plan plan = all.plans.next(size, [&](double times) { return all.has_room(times); });
  if (plan.drop) all.drop();
  switch (plan.step) {
    case StepPlans::Plan::Step::launch:
      return launches();
    case StepPlans::Plan::Step::record:
      return all.record(launches, size).replay();
    case StepPlans::Plan::Step::replay:
      return all.graphs.at(size).replay();
  }
}
#else
struct StepGraph::Recordings {};
StepGraph::StepGraph(bool, bool) {}
void StepGraph::run(int, const std::function<void()>& launches, int64_t) { launches(); }
#endif

StepGraph::~StepGraph() = default;

void StepGraph::forget() { recordings_.reset(); }

}  // namespace octet
