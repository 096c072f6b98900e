// What the page and the picture of a report both show: its results on cards, and every network's score as bars.
#pragma once

#include <string>
#include <vector>

#include "src/report/figures.h"
#include "src/report/report.h"

namespace octet {

/// What int8 cost and brought: score, differing codes, size, speed; of those that are known.
std::vector<Card> result_cards(const Report& report);

BarChart accuracy_chart(const Report& report);

}  // namespace octet
