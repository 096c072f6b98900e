// SPDX-License-Identifier: Apache-2.0
// Functions of single values such as SiLU, which an int8 network looks up in a table (Node::curve). A lookup may have a
// scale for each channel before its function and one behind it, y = output * f(input * x), and then a table for each
// channel; src/quant/equalize.h chooses the scales. Of an edge that only such functions read, what they cannot
// tell apart needs no codes of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "src/net/graph.h"
#include "src/quant/calibrate.h"
#include "src/quant/node_constants.h"
#include "src/quant/plan.h"

namespace octet {

struct CurveScale {
  float input = 1, output = 1;
};

/// Returns the scales of a lookup, one for all channels (which is 1) or one for each. Throws Error(promise) naming the
/// node for one that is not positive and finite.
std::vector<CurveScale> curve_scales(const Node& node, const FloatParams& params);

/// Returns the tables of a lookup with these scales, [256] for each: indexed by the byte that stores the input's code,
/// the byte that stores clamp(quantize(float(y))) of x = dequantize(code). A table has an entry for every byte, also
/// for codes outside the input's range.
std::vector<uint8_t> lookup_tables(const Curve& curve, const std::vector<CurveScale>& scales, const QParams& x,
                                   const QParams& y, const CodeBounds& bounds);

struct Interval {
  double lo = 0, hi = 0;
};

/// Returns the part of `values` outside of which the curve is flat: clipping to it changes no f(x) by more than half of
/// one of `steps` equal steps of f over `values`. SiLU of values down to -20 is flat below about -6.
Interval told_apart(const Curve& curve, const Interval& values, int steps);

/// Returns the parts of intervals within each other, the widest first, as far as `lookups`, which are only_lookups() of
/// a node, tell its values apart in any channel. params: has the scales of lookups that have them. Each channel's curve
/// is evaluated once for all intervals.
std::vector<Interval> told_apart(const std::vector<Interval>& nested, const Prepared& prepared,
                                 const std::vector<int>& lookups, const FloatParams& params);

/// Returns statistics of the same values clipped to the interval, which must overlap them.
Statistics clipped(const Statistics& statistics, const Interval& interval);

/// Returns for each node the lookups that read its output, if nothing else does: no other operator, no operator that
/// passes its codes on, and not the user. Else none.
std::vector<std::vector<int>> only_lookups(const Prepared& prepared);

/// Returns the statistics of a node's output as far as its lookups tell its values apart, as above.
Statistics told_apart(const Statistics& statistics, const Prepared& prepared, const std::vector<int>& lookups,
                      const FloatParams& params);

}  // namespace octet
