// SPDX-License-Identifier: Apache-2.0
// Choosing among kernels: they are timed on the GPU, the fastest is taken, and the choice is remembered.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "src/cuda/stream.h"

namespace octet {

/// Returns the milliseconds of each of `runs` consecutive replays by device events, after one that is not counted.
std::vector<double> time_replays(const CapturedGraph& graph, const Stream& stream, int runs);

struct LaunchTiming {
  int runs = 1;
  /// A launch that takes longer than so many milliseconds is timed only once, if it is much longer than the launch
  /// overhead of the host.
  double slow_ms = std::numeric_limits<double>::max();
};

/// Returns the median milliseconds of one launch. Launches are captured and replayed several at a time, so that the
/// launch overhead of the host does not count. `launch` puts work on `stream` and can be captured.
double time_launches(const Stream& stream, const std::function<void()>& launch, const LaunchTiming& timing);

/// How fastest_candidate() saves time.
struct CandidateSearch {
  double slow_ratio = 2;  ///< a candidate slower than so many times the fastest so far is measured only once
  /// The likely fastest come first: candidates that are left after so many milliseconds are not tried, if one has run.
  double milliseconds = std::numeric_limits<double>::max();
};

/// Returns the milliseconds of one candidate; above `slow_ms` they need not be precise. Throws kernels::LaunchRefused
/// if this GPU does not launch the candidate, but still works, OutOfGpuMemory if there is no room for its work space.
using TimeCandidate = std::function<double(size_t candidate, double slow_ms)>;

/// Returns the index of the fastest candidate, the first of equals. Candidates that are refused or find no room are
/// skipped; any other error ends the search. If none ran, throws the OutOfGpuMemory of the candidate that asked for the
/// fewest bytes, or, if memory was not the reason, Error(promise) with the name and reason of every refusal.
size_t fastest_candidate(const std::vector<std::string>& names, const CandidateSearch& search,
                         const TimeCandidate& time);

/// The result of a measurement.
struct MeasuredChoice {
  size_t fastest = 0;  ///< index of the fastest kernel's name
  /// False if memory was short, so that the fastest kernel may have had no room, or timing differed from a run: this
  /// process keeps the choice, later processes measure again.
  bool for_later = true;
};

/// Returns the index of the name in `names` that `measure` chose for this `work` on this GPU, in this process or, with
/// a kernel cache (kernel_cache.h), in an earlier one; otherwise measures now. A single name is not measured. `work` is
/// one line with everything that the times depend on, except the GPU, octet's version, its kernels' sources and the
/// names.
size_t remembered_choice(const std::string& work, const std::vector<std::string>& names,
                         const std::function<MeasuredChoice()>& measure);

}  // namespace octet
