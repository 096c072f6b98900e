#include "src/model/parallel.h"

#include <ATen/Parallel.h>

// Built with OpenMP (CMakeLists.txt), beside own_cores.cpp alone: in any other, at::parallel_for is a plain loop.
#ifndef INTRA_OP_PARALLEL
#error "at::parallel_for runs on one thread here: build this file with OpenMP"
#endif

namespace octet {

void set_threads(int count) { at::set_num_threads(count); }

void share_among_threads(int64_t count, int64_t grain, c10::function_ref<void(int64_t, int64_t)> share) {
  at::parallel_for(0, count, grain, share);
}

}  // namespace octet
