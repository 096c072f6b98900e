// Times on the GPU by its own events.
#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "src/cuda/stream.h"

namespace octet {

/// Milliseconds of each of `runs` replays, one right after the other, after one that is not counted.
std::vector<double> time_replays(const CapturedGraph& graph, const Stream& stream, int runs);

struct LaunchTiming {
  int runs = 1;
  /// A launch that takes longer than so many milliseconds is timed only once, if it is long enough to be told from the
  /// time that launching takes.
  double slow_ms = std::numeric_limits<double>::max();
};

/// Median milliseconds of one launch: launches are captured and replayed several at a time, so that launching from the
/// host takes no part in it. `launch` puts work on `stream` and may be captured.
double time_launches(const Stream& stream, const std::function<void()>& launch, const LaunchTiming& timing);

}  // namespace octet
