// SPDX-License-Identifier: Apache-2.0
// What `octet search` shows of the plans that it found: as text, JSON, a chart and a page.
#pragma once

#include <string>

#include "trainers/run/ptq_search.h"

namespace octet::cli {

/// The plans that a search found, and what it was asked for.
struct FoundPlans {
  const BitSearch& result;
  const BitSearchOptions& options;
  long images = 0;                           ///< by which plans are judged
  bool labels = false;                       ///< whether those images have labels
  std::string score = "kept", key = "kept";  ///< what a plan's score is called, in JSON too

  double lost_points(const MeasuredPlan& plan) const { return 100 * (result.float_score - plan.score); }
  double operations_share(const MeasuredPlan& plan) const {
    return plan.cost.bit_operations / result.plans.front().cost.bit_operations;
  }
  const char* judged() const { return labels ? "accuracy" : "what the output keeps"; }
  std::string legend() const;  ///< what the columns of the table mean
};

/// Returns what the chosen plan has to satisfy: "loses at most 0.5 points"; "" if nothing was asked for.
std::string asked(const BitSearchOptions& options);

std::string plans_text(const FoundPlans& found);
std::string plans_json(const FoundPlans& found);

/// Draws accuracy against cost, as SVG inside a page.
std::string plans_chart(const FoundPlans& found);

std::string search_page(const FoundPlans& found, const std::string& title);

}  // namespace octet::cli
