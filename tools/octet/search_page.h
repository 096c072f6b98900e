// What octet search found, as a table, a chart and a page.
#pragma once

#include <string>

#include "src/common/text_table.h"
#include "trainers/run/bit_search.h"
#include "trainers/run/run.h"

namespace octet::cli {

inline constexpr const char* kPlansLegend =
    "weights: packed; operations: multiply-adds, each times bits of its weight and of its code; predicted: SQNR of the "
    "logits, the errors of single layers added up";

struct FoundPlans {
  const BitSearch& result;
  const BitSearchOptions& options;
  const Run& run;

  double lost_points(const MeasuredPlan& plan) const { return 100 * (result.float_score - plan.score); }
  double operations_share(const MeasuredPlan& plan) const {
    return plan.cost.bit_operations / result.plans.front().cost.bit_operations;
  }
  long images() const { return static_cast<long>(run.data.validation.size()); }
  const char* score() const { return score_names(run.data.task().labels).score; }
};

/// What the chosen plan was to keep to: "loses at most 0.5 points"; "": nothing was asked.
std::string asked(const BitSearchOptions& options);

TextTable plans_table(const FoundPlans& found);

/// Accuracy against cost, as SVG inside a page.
std::string plans_chart(const FoundPlans& found);

std::string search_page(const FoundPlans& found, const std::string& title);

}  // namespace octet::cli
