// Streams, events and captured graphs, owned. No CUDA types.
#pragma once

#include <functional>
#include <memory>

#include "kernels/cuda_stream.h"

struct CUevent_st;
struct CUgraphExec_st;

namespace octet {

class Stream {
 public:
  Stream();  ///< does not wait for the default stream
  CudaStream get() const { return stream_.get(); }
  /// Waits for everything on the stream; throws Error(promise) if any of it failed, naming `what`.
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
  /// The host waits until the stream got here (not at all for an event never recorded); throws Error(promise) naming
  /// `what` if anything before failed.
  void wait(const char* what = "waiting for a CUDA event") const;
  /// What is put on `stream` from now on waits until this event is reached (not at all for one never recorded).
  void hold(CudaStream stream) const;
  bool reached() const;
  /// Milliseconds from `start` to this event; both have been reached.
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
  /// Runs `launches` once in capture mode: nothing is executed. They may neither allocate nor synchronize.
  CapturedGraph(const Stream& stream, const std::function<void()>& launches);
  void replay(CudaStream stream) const;

 private:
  struct Destroy {
    void operator()(CUgraphExec_st* graph) const;
  };
  std::unique_ptr<CUgraphExec_st, Destroy> graph_;
};

}  // namespace octet
