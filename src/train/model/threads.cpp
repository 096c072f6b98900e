// SPDX-License-Identifier: Apache-2.0
#include "src/train/model/threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <omp.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>
#include <vector>

#include "src/base/threads.h"

// Built with OpenMP (CMakeLists.txt), the only file that is: in any other, at::parallel_for is a plain loop.
#ifndef INTRA_OP_PARALLEL
#error "at::parallel_for runs on one thread here: build this file with OpenMP"
#endif

namespace octet {
namespace {

using Body = void (*)(void*);
using Parallel = void (*)(Body, void*, unsigned, unsigned);
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPeriod{500};

/// Measures what other processes do on `cores`: the time that these were busy, less this process's own.
class Others {
 public:
  explicit Others(std::vector<int> cores) : cores_(std::move(cores)) {}

  /// Returns how many cores others kept busy since the last call; the first call returns 0.
  double operator()() {
    timespec own{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    const double seconds =
        busy_seconds(cores_) - (static_cast<double>(own.tv_sec) + 1e-9 * static_cast<double>(own.tv_nsec));
    const Clock::time_point now = Clock::now();
    const double elapsed = std::chrono::duration<double>(now - asked_).count();
    const double busy = asked_ == Clock::time_point() ? 0 : (seconds - seconds_) / elapsed;
    asked_ = now;
    seconds_ = seconds;
    return busy;
  }

 private:
  const std::vector<int> cores_;
  Clock::time_point asked_;
  double seconds_ = 0;
};

/// The state of a thread that has an OwnCores; `cores` is empty in every other thread.
struct Binding {
  std::vector<int> cores;
  std::function<double()> others;
  Clock::time_point next_look;
  bool binds = false;    ///< whether other processes are busy
  unsigned threads = 0;  ///< of its last parallel region: libgomp ends those that the next one does not need
};
thread_local Binding binding;

/// Decides, at most twice a second, whether threads are to be bound. Linux's ticks and the process's clock
/// disagree by 1 % of the cores' time. Between the two bounds the last decision stays.
void look_around() {
  const Clock::time_point now = Clock::now();
  if (now < binding.next_look) return;
  binding.next_look = now + kPeriod;
  const double busy = binding.others() - 0.01 * static_cast<double>(binding.cores.size());
  if (busy > 0.25 || busy < 0.1) binding.binds = busy > 0.25;
}

struct Region {
  Body body = nullptr;
  void* data = nullptr;
  const Binding& binding;
};

/// Runs a region's body in one of its threads, which binds or unbinds itself first.
void run_placed(void* data) {
  const Region& region = *static_cast<const Region*>(data);
  const auto thread = static_cast<size_t>(omp_get_thread_num());
  if (region.binding.binds != is_bound()) {
    if (is_bound())
      unbind();
    else if (thread < region.binding.cores.size())
      bind_to_core(region.binding.cores[thread]);
  }
  region.body(region.data);
}

Parallel libgomps_parallel() {
  static const auto parallel = reinterpret_cast<Parallel>(::dlsym(RTLD_NEXT, "GOMP_parallel"));
  if (parallel == nullptr) {
    std::fputs("octet: GCC's OpenMP library (libgomp) is not loaded behind the program\n", stderr);
    std::abort();
  }
  return parallel;
}

}  // namespace

int thread_count() { return at::get_num_threads(); }

void set_threads(int count) { at::set_num_threads(count); }

void share_among_threads(int64_t count, int64_t grain, c10::function_ref<void(int64_t, int64_t)> share) {
  at::parallel_for(0, count, grain, share);
}

OwnCores::OwnCores(bool wanted, std::function<double()> others) {
  const std::vector<int> cores = affinity();
  binds_ =
      wanted && binding.cores.empty() && cores.size() > 1 && at::get_num_threads() == static_cast<int>(cores.size());
  if (binds_) binding = {.cores = cores, .others = others ? std::move(others) : Others(cores)};
}

OwnCores::~OwnCores() {
  if (!binds_) return;
  const auto threads = static_cast<int64_t>(binding.cores.size());
  binding = {};
  share_among_threads(threads, 1, [](int64_t, int64_t) { unbind(); });
  unbind();
}

}  // namespace octet

/// Replaces libgomp's function, which begins every parallel region of LibTorch and of octet: the dynamic linker takes
/// the program's functions first. OMP_PROC_BIND, by which libgomp binds threads itself, is read when it is loaded, and
/// would bind the threads of every program and the first thread of every process, whatever they do.
extern "C" void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags) {
  using namespace octet;  // NOLINT
  if (binding.cores.empty() || omp_in_parallel()) return libgomps_parallel()(body, data, threads, flags);
  const unsigned team = threads > 0 ? threads : static_cast<unsigned>(omp_get_max_threads());
  if (team > binding.threads) unbind();  // new threads have the affinity of this one
  binding.threads = team;
  look_around();
  Region region{body, data, binding};
  libgomps_parallel()(run_placed, &region, threads, flags);
}
