// SPDX-License-Identifier: Apache-2.0
#include "src/base/threads.h"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <utility>

#include "src/base/error.h"

namespace octet {

std::thread start_thread(std::function<void()> body, const std::string& what, const std::string& cure) {
  std::function<void()> run = std::move(body);
  if (is_bound())  // only the calling thread is meant to be bound
    run = [body = std::move(run), cores = affinity()] {
      bind_to_cores(cores);
      body();
    };
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    throw usage_error(
        fmt::format("{} did not start ({}): the system allows no more threads (ulimit -u, the pids limit of a "
                    "container) or has no memory for one; {}",
                    what, error.code().message(), cure));
  }
}

namespace {

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // yield does nothing on most Arm cores
#endif
}

// Long enough for the gap between two layers of a network, short enough not to occupy a core between images.
constexpr int kSpins = 20000;
constexpr int kSpinsBeforeYield = 1000;

}  // namespace

/// The tasks [next, end) that a thread begins with, in one atomic word, so that a task and the loop it belongs to are
/// taken together. A worker that wakes up late finds the share empty or already filled for the next loop; both are
/// right.
class alignas(64) Share {
 public:
  void fill(uint32_t begin, uint32_t end) { word_.store(uint64_t{end} << 32 | begin, std::memory_order_release); }

  /// Takes the next task; -1 if none is left.
  int take() {
    const uint64_t word = word_.fetch_add(1, std::memory_order_acquire);
    const auto next = static_cast<uint32_t>(word), end = static_cast<uint32_t>(word >> 32);
    return next < end ? static_cast<int>(next) : -1;
  }

 private:
  std::atomic<uint64_t> word_{0};
};

struct ThreadPool::State {
  explicit State(int count) : shares(count) { threads.reserve(count - 1); }

  /// Ends the threads, also when only some of them could be started.
  ~State() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<Share> shares;  // one for each thread
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<uint64_t> generation{0};  // incremented for each loop; workers wait for it to change
  std::atomic<bool> stop{false};
  // Read only by a thread that took a task: the loop cannot end, nor the next begin, before that task is counted.
  const std::function<void(int, int)>* body = nullptr;
  std::atomic<int> unfinished{0};  // tasks

  /// Works on the thread's own share, then on those of others. Consecutive tasks, and in the next loop the same part of
  /// the data, stay in the caches of one core: up to 12 % of the time of a small network.
  void work(int thread) {
    for (size_t i = 0; i < shares.size(); ++i) {
      Share& share = shares[(thread + i) % shares.size()];
      for (int task = share.take(); task >= 0; task = share.take()) {
        (*body)(task, thread);
        unfinished.fetch_sub(1, std::memory_order_release);
      }
    }
  }

  void wait_for_change(uint64_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (generation.load(std::memory_order_acquire) != seen || stop.load()) return;
      pause_core();
    }
    std::unique_lock lock(mutex);
    wake.wait(lock, [&] { return generation.load() != seen || stop.load(); });
  }

  void loop(int thread) {
    for (uint64_t seen = 0;;) {
      wait_for_change(seen);
      if (stop.load()) return;
      seen = generation.load();
      work(thread);
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>(threads > 0 ? threads : usable_cores())) {
  for (int thread = 1; thread < size(); ++thread) {
    state_->threads.push_back(start_thread([s = state_.get(), thread] { s->loop(thread); },
                                           fmt::format("thread {} of {}", thread + 1, size()),
                                           "ask for fewer threads"));
  }
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::size() const { return static_cast<int>(state_->shares.size()); }

void ThreadPool::run(int tasks, const std::function<void(int, int)>& body) {
  State& s = *state_;
  if (s.threads.empty() || tasks <= 1) {
    for (int task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  s.body = &body;
  s.unfinished.store(tasks, std::memory_order_relaxed);  // both published by fill()
  const uint64_t count = s.shares.size(), all = static_cast<uint64_t>(tasks);
  for (uint64_t thread = 0; thread < count; ++thread) {
    s.shares[thread].fill(static_cast<uint32_t>(all * thread / count),
                          static_cast<uint32_t>(all * (thread + 1) / count));
  }
  {
    std::lock_guard lock(s.mutex);
    s.generation.fetch_add(1, std::memory_order_release);
  }
  s.wake.notify_all();
  s.work(0);
  // Waits for tasks, not for workers: on a busy machine a worker may not have woken up yet. The last tasks end soon,
  // unless their worker lost its core to another process; yielding gives it ours.
  for (int spin = 0; s.unfinished.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < kSpinsBeforeYield) {
      pause_core();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace octet
