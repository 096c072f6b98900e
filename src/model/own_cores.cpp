#include "src/model/own_cores.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <omp.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "src/common/cores.h"
#include "src/model/parallel.h"

namespace octet {
namespace {

using Body = void (*)(void*);
using Parallel = void (*)(Body, void*, unsigned, unsigned);

/// Of a thread that has OwnCores; `cores` is empty in every other one.
struct Binding {
  std::vector<int> cores;
  unsigned threads = 0;  ///< of its last parallel region: libgomp ends those that the next one does not need
};
thread_local Binding binding;

struct Region {
  Body body = nullptr;
  void* data = nullptr;
  const std::vector<int>& cores;
};

/// What each thread of a region runs. A thread that is new is bound here; all others are.
void run_bound(void* data) {
  const Region& region = *static_cast<const Region*>(data);
  const auto thread = static_cast<size_t>(omp_get_thread_num());
  if (!is_bound() && thread < region.cores.size()) bind_to_core(region.cores[thread]);
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

OwnCores::OwnCores(bool wanted) {
  const std::vector<int> cores = affinity();
  binds_ =
      wanted && binding.cores.empty() && cores.size() > 1 && at::get_num_threads() == static_cast<int>(cores.size());
  if (binds_) binding = {.cores = cores};
}

OwnCores::~OwnCores() {
  if (!binds_) return;
  const auto threads = static_cast<int64_t>(binding.cores.size());
  binding = {};
  share_among_threads(threads, 1, [](int64_t, int64_t) { unbind(); });
  unbind();
}

}  // namespace octet

/// Every parallel region of LibTorch and of octet begins here, before libgomp: the dynamic linker takes the program's
/// functions first. OMP_PROC_BIND, libgomp's own way to bind, is read when it is loaded, and would bind the threads of
/// every program and the first thread of every process, whatever they do.
extern "C" void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags) {
  using namespace octet;  // NOLINT
  if (binding.cores.empty() || omp_in_parallel()) return libgomps_parallel()(body, data, threads, flags);
  const unsigned team = threads > 0 ? threads : static_cast<unsigned>(omp_get_max_threads());
  if (team > binding.threads) unbind();  // new threads have the affinity of this one
  binding.threads = team;
  Region region{body, data, binding.cores};
  libgomps_parallel()(run_bound, &region, threads, flags);
}
