#include "trainers/run/stage_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "src/common/error.h"
#include "trainers/loop/staged_pass.h"

namespace octet {
namespace {

constexpr double kAsFast = 1.02;  // two measurements of one part differ by more
constexpr double kNever = std::numeric_limits<double>::infinity();

PartCost sum_of(const std::vector<PartCost>& parts, size_t begin, size_t end, int under_way) {
  PartCost sum;
  for (size_t i = begin; i < end; ++i) {
    sum.milliseconds += parts[i].milliseconds;
    sum.fastest += parts[i].fastest;
    sum.slowest += parts[i].slowest;
    sum.kept_bytes += parts[i].kept_bytes * under_way;
    sum.weight_bytes += parts[i].weight_bytes;
  }
  sum.last = parts[end - 1].last;
  sum.border_bytes = parts[end - 1].border_bytes;
  return sum;
}

/// Ends of the stages whose largest cost is the smallest there is. cost(stage, begin, end) of parts begin to end - 1.
struct Cuts {
  double largest = kNever;
  std::vector<size_t> ends;
};
Cuts best_cuts(size_t parts, int stages, const std::function<double(int stage, size_t begin, size_t end)>& cost) {
  std::vector<Cuts> best(parts + 1);  // of the stages so far, by end
  best[0].largest = 0;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Cuts> next(parts + 1);
    for (size_t end = 1; end <= parts; ++end) {
      for (size_t begin = 0; begin < end; ++begin) {
        const double largest = std::max(best[begin].largest, cost(stage, begin, end));
        if (best[begin].largest == kNever || largest >= next[end].largest) continue;
        next[end] = {largest, best[begin].ends};
        next[end].ends.push_back(end);
      }
    }
    best = std::move(next);
  }
  return best[parts];
}

}  // namespace

StagePlan plan_stages(const std::vector<PartCost>& parts, int stages, int micro_batches) {
  if (static_cast<size_t>(stages) > parts.size())
    throw usage_error(
        fmt::format("{} stages: the network has {} parts that a cut can tell apart", stages, parts.size()));
  const auto under_way = [&](int stage) { return StagedPass::most_under_way(stage, stages, micro_batches); };
  const auto stage_of = [&](int stage, size_t begin, size_t end) {
    return sum_of(parts, begin, end, under_way(stage));
  };
  // A stage begins when those before it have given it the first micro-batch, and they end with the last one's way back:
  // all micro-batches in the stage, and both passes of one in those before it.
  const auto milliseconds = [&](int stage, size_t begin, size_t end) {
    return micro_batches * stage_of(stage, begin, end).milliseconds +
           (begin == 0 ? 0 : sum_of(parts, 0, begin, 1).milliseconds);
  };
  const Cuts fastest = best_cuts(parts.size(), stages, milliseconds);
  const Cuts chosen = best_cuts(parts.size(), stages, [&](int stage, size_t begin, size_t end) {
    if (milliseconds(stage, begin, end) > kAsFast * fastest.largest) return kNever;
    const PartCost cost = stage_of(stage, begin, end);
    return cost.kept_bytes + 4 * cost.weight_bytes;
  });
  StagePlan plan;
  double slowest = 0, all = 0;
  for (size_t i = 0, begin = 0; i < chosen.ends.size(); begin = chosen.ends[i++]) {
    plan.stages.push_back(stage_of(static_cast<int>(i), begin, chosen.ends[i]));
    if (i + 1 < chosen.ends.size()) plan.layers.push_back(plan.stages.back().last);
    slowest = std::max(slowest, milliseconds(static_cast<int>(i), begin, chosen.ends[i]));
    all += plan.stages.back().milliseconds;
  }
  plan.speed_up = micro_batches * all / slowest;
  return plan;
}

}  // namespace octet
