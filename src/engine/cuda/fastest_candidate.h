// The fastest of several kernels for one piece of work. No CUDA here: who asks brings the clock.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace octet {

struct CandidateSearch {
  double slow_ratio = 2;  ///< a candidate that takes so many times the best so far is measured only once
  /// The likely fastest come first: what is left when this time has passed, and one has run, is not tried.
  double milliseconds = std::numeric_limits<double>::max();
};

/// Milliseconds of one candidate; one that takes longer than `slow_ms` need not be measured well. Throws
/// kernels::LaunchRefused when this GPU does not take it and is as before, OutOfGpuMemory when it has no room for the
/// candidate's work space.
using TimeCandidate = std::function<double(size_t candidate, double slow_ms)>;

/// Index of the candidate of the least time, the first of equals. Those that are refused or find no room are left out;
/// any other error ends the search. When none ran it throws OutOfGpuMemory of the one that asked for least, if any
/// found no room, else Error(promise) with the name and reason of every refusal.
size_t fastest_candidate(const std::vector<std::string>& names, const CandidateSearch& search,
                         const TimeCandidate& time);

}  // namespace octet
