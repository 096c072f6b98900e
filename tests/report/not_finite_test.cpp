// SPDX-License-Identifier: Apache-2.0
// Every number that a diverged run can measure, in every form of its report.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>

#include "src/base/text.h"
#include "src/report/report.h"
#include "src/report/svg.h"
#include "tests/report/full_report.h"
#include "tests/report/markup.h"

namespace octet {
namespace {

using Limits = std::numeric_limits<double>;
using testing::full_report, testing::parse_markup;

const double kNumbers[] = {Limits::quiet_NaN(),
                           Limits::infinity(),
                           -Limits::infinity(),
                           Limits::max(),
                           Limits::lowest(),
                           Limits::denorm_min(),
                           1e30,
                           0};

Report report_of(double number) {
  Report report = full_report(10);
  for (EpochMetrics& epoch : report.epochs) {
    epoch.train_loss = epoch.train_cross_entropy = epoch.learning_rate = number;
    epoch.validation_loss = number;
    epoch.images_per_second = epoch.data_wait_share = epoch.seconds = number;
    for (RankMetrics& rank : epoch.ranks) rank.images_per_second = rank.exchange_share = rank.data_wait_share = number;
  }
  for (Row& row : report.rows) row.evaluation.loss = number;
  const auto end = static_cast<float>(std::clamp(number, -3e38, 3e38));  // histograms have finite ends
  for (ReportLayer& layer : report.layers) {
    layer.statistics.sqnr_db = layer.statistics.weight_sqnr_db = number;
    for (Histogram* histogram : {&layer.statistics.weights, &layer.statistics.activations}) {
      if (histogram->counts.empty()) continue;
      histogram->not_finite = 1234;
      if (std::isnan(end)) {
        histogram->lo = histogram->hi = 0;
        histogram->counts.assign(64, 0.0);
      } else {
        histogram->lo = std::min(-end, end);
        histogram->hi = std::max(-end, end);
      }
    }
  }
  return report;
}

/// Coordinates of the charts are numbers, and none of hundreds of digits.
void expect_drawn(const std::string& page) {
  EXPECT_EQ(parse_markup(page).error, "");
  const std::regex attribute(" (?:d|x|y|cx|cy|width|height|viewBox)=\"([^\"]*)\"");
  for (std::sregex_iterator at(page.begin(), page.end(), attribute), end; at != end; ++at) {
    const std::string value = (*at)[1];
    EXPECT_EQ(value.find("nan"), std::string::npos) << value;
    EXPECT_EQ(value.find("inf"), std::string::npos) << value;
    EXPECT_FALSE(std::regex_search(value, std::regex("[0-9]{7}"))) << value;
  }
}

TEST(NotFinite, EveryFormOfAReportTakesEveryNumber) {
  for (const double number : kNumbers) {
    SCOPED_TRACE(number);
    const Report report = report_of(number);
    const std::string page = report_html(report);
    expect_drawn(page);
    expect_drawn(report_svg(report));
    EXPECT_NE(page.find("not finite: 1,234 values"), std::string::npos);
    EXPECT_FALSE(report_table(report).empty());
    const auto json = nlohmann::json::parse(report_json(report));
    const nlohmann::json& loss = json.at("epochs").at(0).at("validation_loss");
    if (std::isfinite(number)) {
      EXPECT_EQ(loss.get<double>(), number);
    } else {
      EXPECT_TRUE(loss.is_null());  // as src/report/README.md says
    }
    EXPECT_EQ(json.at("layers").at(0).at("weights").at("not_finite"), 1234);
  }
}

TEST(NotFinite, LabelsOfLargeTicksAreShort) {
  EXPECT_EQ(nice_ticks(0, Limits::denorm_min(), 4).size(), 1u);
  EXPECT_EQ(nice_ticks(1e20, 1e20 + 16384, 4).size(), 1u);
  EXPECT_EQ(nice_ticks(0, Limits::max(), 4).size(), 1u);
  EXPECT_EQ(tick_labels({0, 5e26, 1e27}), (std::vector<std::string>{"0", "5e+26", "1e+27"}));
  EXPECT_EQ(tick_labels({0, 500000, 1000000}), (std::vector<std::string>{"0", "500000", "1000000"}));
}

TEST(NotFinite, TextsSayWhatIsNoNumber) {
  EXPECT_EQ(decibels(Limits::quiet_NaN()), "not finite");
  EXPECT_EQ(whole_number(1234.6), "1,235");
  EXPECT_EQ(whole_number(Limits::quiet_NaN()), "nan");
  EXPECT_EQ(whole_number(1e300), "1e+300");
}

}  // namespace
}  // namespace octet
