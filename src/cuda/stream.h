// SPDX-License-Identifier: Apache-2.0
// Owned streams, events and captured graphs of the current GPU. No CUDA types.
#pragma once

#include <functional>
#include <memory>

#include "kernels/core/cuda.h"

struct CUevent_st;
struct CUgraphExec_st;

namespace octet {

/// A stream that does not synchronize with the default stream.
class Stream {
 public:
  Stream();
  CudaStream get() const { return stream_.get(); }
  /// Waits for all work on the stream. Throws Error(promise) naming `what` if any of it failed.
  void wait(const char* what) const;

 private:
  struct Destroy {
    void operator()(CUstream_st* stream) const;
  };
  std::unique_ptr<CUstream_st, Destroy> stream_;
};

/// A point on a stream, with a time stamp.
class Event {
 public:
  Event();
  void record(CudaStream stream);
  /// Makes the host wait until the stream has reached this event; an event that was never recorded counts as reached.
  /// Throws Error(promise) naming `what` if earlier work failed.
  void wait(const char* what = "waiting for a CUDA event") const;
  /// Makes later work on `stream` wait until this event is reached; one that was never recorded counts as reached.
  void hold(CudaStream stream) const;
  bool reached() const;
  /// Returns the milliseconds from `start` to this event. Both must have been reached.
  float milliseconds_since(const Event& start) const;

 private:
  struct Destroy {
    void operator()(CUevent_st* event) const;
  };
  std::unique_ptr<CUevent_st, Destroy> event_;
};

/// A recorded sequence of launches, replayed as one.
class CapturedGraph {
 public:
  /// Calls `launches` once in capture mode, in which nothing is executed. It may neither allocate nor synchronize.
  CapturedGraph(const Stream& stream, const std::function<void()>& launches);
  void replay(CudaStream stream) const;

 private:
  struct Destroy {
    void operator()(CUgraphExec_st* graph) const;
  };
  std::unique_ptr<CUgraphExec_st, Destroy> graph_;
};

}  // namespace octet
