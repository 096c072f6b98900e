// Which of several ways to do one piece of work was the fastest: measured once, and remembered.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace octet {

/// What a measurement found the fastest, an index of names.
struct MeasuredChoice {
  size_t fastest = 0;
  /// False where memory was short, so that the fastest may have had no room, or was timed otherwise than a run goes:
  /// this process keeps to it, later ones may have the room and measure anew.
  bool for_later = true;
};

/// Index of the name that `measure` has picked from `names` for this `work` on this GPU: in this process or, with a
/// kernel cache (kernel_cache.h), in an earlier one; else it is asked now. A single name is not measured. `work` is one
/// line with everything that the times depend on but the GPU, octet's version, its kernels' sources and the names.
size_t remembered_choice(const std::string& work, const std::vector<std::string>& names,
                         const std::function<MeasuredChoice()>& measure);

}  // namespace octet
