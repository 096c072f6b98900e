// SPDX-License-Identifier: Apache-2.0
// Cores and threads: how many cores this process may use and which, starting a thread, a pool for parallel loops.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace octet {

inline constexpr int kMostThreads = 1024;  ///< a larger number of threads is refused as a typing error

/// Returns how many cores this process may keep busy, by which octet chooses numbers of threads: the cores in its
/// affinity (taskset, cpuset, a batch system), at most its CPU quota (`docker --cpus=1.5`: 2), at least 1. Both are
/// read anew in every call.
int usable_cores();

/// Returns the CPU quota of this process in cores, rounded up: the smallest of its cgroup (v2 `cpu.max`, v1
/// `cpu.cfs_quota_us`) and of all that contain it; 0 if there is none. Tests put `root` before /proc and /sys.
int quota_cores(const std::string& root = "");

/// Returns the cores in the calling thread's affinity, ascending; if bind_to_core() changed it, those from before.
std::vector<int> affinity();

/// Returns the seconds that these cores have worked for any process since the machine started (/proc/stat, in ticks of
/// 10 ms); 0 if that cannot be read. Tests put `root` before /proc.
double busy_seconds(const std::vector<int>& cores, const std::string& root = "");

/// Binds the calling thread to one core until unbind(), if the system allows it. Threads from start_thread() are not
/// bound with it; other threads and processes that the calling thread starts are.
void bind_to_core(int core);
bool is_bound();
void unbind();                                      ///< restores the affinity from before bind_to_core()
void bind_to_cores(const std::vector<int>& cores);  ///< permanently

/// "2 cores", or "64 cores, of which octet may use 2".
std::string described_cores();

/// Starts a thread that runs body(), on all cores of the process even if the calling thread is bound to one. If the
/// system refuses, throws Error(usage): "`what` did not start (Resource temporarily unavailable)", the limits that may
/// have been reached, and `cure`. For example "thread 4 of 8" and "ask for fewer threads".
std::thread start_thread(std::function<void()> body, const std::string& what, const std::string& cure);

/// A fixed set of threads that run one parallel loop at a time, with low latency: they spin, then sleep.
class ThreadPool {
 public:
  /// 0: usable_cores() threads. The calling thread is one of them. If the system refuses one, all are ended and
  /// Error(usage) says which one.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  int size() const;
  /// Calls body(task, thread) for each task in [0, tasks) and returns when all are done. Each thread begins with an
  /// equal range of consecutive tasks, then takes over what others have not begun. body must not throw.
  void run(int tasks, const std::function<void(int task, int thread)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octet
