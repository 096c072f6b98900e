#include "src/engine/cuda/fastest_candidate.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "kernels/launch_refused.h"
#include "src/cuda/memory.h"

namespace octet {

size_t fastest_candidate(const std::vector<std::string>& names, const CandidateSearch& search,
                         const TimeCandidate& time) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<size_t> best;
  double least = std::numeric_limits<double>::max();
  std::string refusals;
  std::optional<OutOfGpuMemory> no_room;
  for (size_t candidate = 0; candidate < names.size(); ++candidate) {
    const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start;
    if (best && passed.count() > search.milliseconds) break;
    try {
      const double milliseconds = time(candidate, best ? search.slow_ratio * least : least);
      if (best && milliseconds >= least) continue;
      best = candidate;
      least = milliseconds;
    } catch (const kernels::LaunchRefused& refusal) {
      refusals += fmt::format("; {}: {}", names[candidate], refusal.what());
    } catch (const OutOfGpuMemory& error) {
      if (!no_room || error.asked() < no_room->asked()) no_room = error;
    }
  }
  if (!best && no_room) throw OutOfGpuMemory(*no_room);
  if (!best) throw promise_error(fmt::format("this GPU launches none of {} kernels{}", names.size(), refusals));
  return *best;
}

}  // namespace octet
