#include "src/common/thread_pool.h"

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace octet {
namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Long enough to bridge the gap between two layers of a network, short enough not to burn a core between images.
constexpr int kSpins = 20000;
constexpr int kSpinsBeforeYield = 1000;

}  // namespace

/// The tasks a thread begins with: [next, end).
struct alignas(64) Share {
  std::atomic<int> next{0};
  int end = 0;
};

struct ThreadPool::State {
  explicit State(int count) : shares(count) {}

  std::vector<Share> shares;  // one a thread
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<uint64_t> generation{0};  // raised once a loop; workers wait for it to change
  std::atomic<int> busy{0};
  std::atomic<bool> stop{false};
  const std::function<void(int, int)>* body = nullptr;

  /// Its own share first, then what others left over. Neighbouring tasks, and in the next loop the same part of the
  /// data, meet the caches of one core: up to 12 % of the time of a small network.
  void work(int thread) {
    for (size_t i = 0; i < shares.size(); ++i) {
      Share& share = shares[(thread + i) % shares.size()];
      for (int task = share.next.fetch_add(1); task < share.end; task = share.next.fetch_add(1)) (*body)(task, thread);
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
      busy.fetch_sub(1, std::memory_order_release);
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>(threads > 0 ? threads : usable_cores())) {
  for (int thread = 1; thread < size(); ++thread)
    state_->threads.emplace_back([s = state_.get(), thread] { s->loop(thread); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::size() const { return static_cast<int>(state_->shares.size()); }

void ThreadPool::run(int tasks, const std::function<void(int, int)>& body) {
  State& s = *state_;
  if (s.threads.empty() || tasks <= 1) {
    for (int task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  s.body = &body;
  const long count = size();
  for (long thread = 0; thread < count; ++thread) {
    s.shares[thread].next.store(static_cast<int>(tasks * thread / count));
    s.shares[thread].end = static_cast<int>(tasks * (thread + 1) / count);
  }
  s.busy.store(static_cast<int>(s.threads.size()));
  {
    std::lock_guard lock(s.mutex);
    s.generation.fetch_add(1, std::memory_order_release);
  }
  s.wake.notify_all();
  s.work(0);
  // The last tasks end soon, unless their worker lost its core to another process: then it gets ours.
  for (int spin = 0; s.busy.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < kSpinsBeforeYield) {
      pause_core();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace octet
