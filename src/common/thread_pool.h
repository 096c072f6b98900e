// A fixed set of threads that run one parallel loop at a time, with little latency (spin, then sleep).
#pragma once

#include <functional>
#include <memory>

namespace octet {

class ThreadPool {
 public:
  /// 0: as many as there are usable cores (cores.h); the caller is one of them. If the system refuses one of them, none
  /// stays and Error(usage) says which.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  int size() const;
  /// Calls body(task, thread) for task in [0, tasks); returns when all are done. Each thread begins with an equal range
  /// of neighbouring tasks and then takes over what others have not begun. body must not throw.
  void run(int tasks, const std::function<void(int task, int thread)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octet
