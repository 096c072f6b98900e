// SPDX-License-Identifier: Apache-2.0
// What functions of single values such as SiLU, which an int8 network looks up in a table (Node::function), tell apart:
// of an edge that only such functions read, other values need no codes of their own.
#pragma once

#include <vector>

#include "src/net/graph.h"
#include "src/quant/calibrate.h"
#include "src/quant/node_constants.h"
#include "src/quant/plan.h"

namespace octet {

struct Interval {
  double lo = 0, hi = 0;
};

/// Returns the part of `values` outside of which the function is flat: clipping to it changes no f(x) by more than half
/// of one of `steps` equal steps of f over `values`. SiLU of values down to -20 is flat below about -6.
Interval told_apart(const Function& function, const Interval& values, int steps);

/// Returns the parts of intervals within each other, the widest first, as far as `lookups`, which are only_lookups() of
/// a node, tell its values apart in any channel. params: has the scales of lookups that have them. Each channel's
/// function is evaluated once for all intervals.
std::vector<Interval> told_apart(const std::vector<Interval>& nested, const Prepared& prepared,
                                 const std::vector<int>& lookups, const FloatParams& params);

/// Returns statistics of the same values clipped to the interval, which must overlap them.
Statistics clipped(const Statistics& statistics, const Interval& interval);

/// Returns for each node the lookups that read its output, if nothing else does: no other operator, no operator that
/// passes its codes on, and not the user. Else none.
std::vector<std::vector<int>> only_lookups(const Prepared& prepared);

/// Returns the statistics of a node's output as far as its lookups tell its values apart.
Statistics told_apart(const Statistics& statistics, const Prepared& prepared, const std::vector<int>& lookups,
                      const FloatParams& params);

}  // namespace octet
