// LibTorch's threads, for its operators and for octet's own loops over tensors.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace octet {

/// How many there are from now on.
void set_threads(int count);

/// Calls share(begin, end) for equal parts of [0, count), each on a thread of its own: as many as there are threads,
/// but no more than one for every `grain` begun. An exception of a share is thrown again.
void share_among_threads(int64_t count, int64_t grain, c10::function_ref<void(int64_t, int64_t)> share);

}  // namespace octet
