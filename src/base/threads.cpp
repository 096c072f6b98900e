// SPDX-License-Identifier: Apache-2.0
#include "src/base/threads.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <fstream>
#include <mutex>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"

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

namespace {

constexpr const char* kCgroups = "/sys/fs/cgroup";

int online_cores() { return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))); }

using CoreSet =
    std::array<cpu_set_t, 64>;  // 1,024 cores each; calls fail if it has fewer bits than the kernel has cores

/// The affinity of this thread before bind_to_core(); empty if it is not bound.
thread_local std::vector<int> before_binding;

/// Returns quota / period, both in microseconds, as cores; none if the quota is "max" (v2) or -1 (v1).
std::optional<double> cores_of(std::istream& quota_in, std::istream& period_in) {
  double quota = 0, period = 0;
  if (!(quota_in >> quota) || quota <= 0 || !(period_in >> period) || period <= 0) return std::nullopt;
  return quota / period;
}

/// Returns the quota of one folder of a cgroup hierarchy (Linux, Documentation/admin-guide/cgroup-v2.rst, "cpu.max",
/// and Documentation/scheduler/sched-bwc.rst).
std::optional<double> quota_of(const std::string& folder, bool v2) {
  if (v2) {
    std::ifstream both(folder + "/cpu.max");
    return cores_of(both, both);
  }
  std::ifstream quota(folder + "/cpu.cfs_quota_us"), period(folder + "/cpu.cfs_period_us");
  return cores_of(quota, period);
}

/// Returns the smallest quota of `group` and of the groups that contain it. In a container whose /proc shows the host's
/// path, the container's own group is mounted at `mount` itself: folders of the path that do not exist are skipped.
std::optional<double> smallest_quota(const std::string& mount, std::string group, bool v2) {
  std::optional<double> smallest;
  for (;;) {
    if (group == "/") group.clear();
    const std::optional<double> quota = quota_of(mount + group, v2);
    if (quota && (!smallest || *quota < *smallest)) smallest = quota;
    if (group.empty()) return smallest;
    group.erase(group.rfind('/'));
  }
}

/// Returns the folders at which the hierarchy with these controllers may be mounted, as its line in /proc/self/cgroup
/// names them: no controllers in v2.
std::vector<std::string> mounts_of(const std::string& controllers) {
  if (controllers.empty()) return {"", "/unified"};
  const std::vector<std::string> names = split(controllers, ',');
  if (std::find(names.begin(), names.end(), "cpu") == names.end()) return {};
  return {"/cpu", "/" + controllers};  // on most systems the first is a link to the second
}

}  // namespace

int quota_cores(const std::string& root) {
  std::optional<double> smallest;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,cpuacct:/docker/5a17", v2: "0::/user.slice"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos || line[second + 1] != '/') continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    for (const std::string& mount : mounts_of(controllers)) {
      const std::optional<double> quota =
          smallest_quota(root + kCgroups + mount, line.substr(second + 1), controllers.empty());
      if (quota && (!smallest || *quota < *smallest)) smallest = quota;
    }
  }
  if (!smallest) return 0;
  return static_cast<int>(std::clamp(std::ceil(*smallest), 1.0, 1e6));
}

std::vector<int> affinity() {
  if (is_bound()) return before_binding;
  CoreSet set{};
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), set.data()) == 0) {
    for (int core = 0; core < static_cast<int>(8 * sizeof(set)); ++core)
      if (CPU_ISSET_S(core, sizeof(set), set.data())) cores.push_back(core);
  } else {  // forbidden, by seccomp
    for (int core = 0; core < online_cores(); ++core) cores.push_back(core);
  }
  return cores;
}

double busy_seconds(const std::vector<int>& cores, const std::string& root) {
  double ticks = 0;
  std::ifstream stat(root + "/proc/stat");
  for (std::string line; std::getline(stat, line);) {  // "cpu0 user nice system idle iowait irq softirq steal ..."
    std::istringstream fields(line);
    std::string name;
    int core = -1;
    std::array<double, 7> spent{};
    fields >> name;
    if (!name.starts_with("cpu") || !(std::istringstream(name.substr(3)) >> core)) continue;  // "cpu" is their sum
    for (double& part : spent) fields >> part;
    if (std::binary_search(cores.begin(), cores.end(), core))
      ticks += spent[0] + spent[1] + spent[2] + spent[5] + spent[6];
  }
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

void bind_to_cores(const std::vector<int>& cores) {
  CoreSet set{};
  for (const int core : cores) CPU_SET_S(core, sizeof(set), set.data());
  ::sched_setaffinity(0, sizeof(set), set.data());  // may fail (core offline, seccomp): the thread then runs unbound
}

bool is_bound() { return !before_binding.empty(); }

void bind_to_core(int core) {
  before_binding = affinity();
  bind_to_cores({core});
}

void unbind() {
  if (is_bound()) bind_to_cores(std::exchange(before_binding, {}));
}

int usable_cores() {
  const int cores = static_cast<int>(affinity().size()), quota = quota_cores();
  return quota > 0 ? std::min(cores, quota) : cores;
}

std::string described_cores() {
  const int online = online_cores(), usable = usable_cores();
  const std::string cores = fmt::format("{} {}", online, online == 1 ? "core" : "cores");
  return usable < online ? fmt::format("{}, of which octet may use {}", cores, usable) : cores;
}

}  // namespace octet
