// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/report/svg.h"
#include "tests/report/markup.h"

namespace octet {
namespace {

using testing::occurrences;
using testing::parse_markup;

std::vector<double> rounded(std::vector<double> ticks) {
  for (double& t : ticks) t = std::stod(std::to_string(t));
  return ticks;
}

TEST(Svg, TicksAreRoundNumbersInside) {
  EXPECT_EQ(nice_ticks(0, 100, 4), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(rounded(nice_ticks(90.2, 91.8, 4)), (std::vector<double>{90.5, 91, 91.5}));
  EXPECT_EQ(rounded(nice_ticks(-0.01, 0.1, 5)), (std::vector<double>{0, 0.02, 0.04, 0.06, 0.08, 0.1}));
  EXPECT_EQ(nice_ticks(5, 5, 4), (std::vector<double>{5}));
  EXPECT_FALSE(std::signbit(nice_ticks(-9, 500, 8)[0])) << "an axis that begins with -0";
  EXPECT_EQ(tick_labels({0, 0.5, 1}), (std::vector<std::string>{"0.0", "0.5", "1.0"}));
  EXPECT_EQ(tick_labels({0, 50}), (std::vector<std::string>{"0", "50"}));
}

TEST(Svg, LongTextIsCutAtACodePoint) {
  EXPECT_EQ(fit_text("short", 100, 10), "short");
  const std::string cut = fit_text("\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC", 20, 10);
  EXPECT_EQ(cut, "\xC3\xBC\xC3\xBC\xE2\x80\xA6");
}

TEST(Svg, TextIsPartedAtSpacesWhereALineIsFull) {
  EXPECT_EQ(wrap_text("", 100, 10), std::vector<std::string>{});
  const std::string text = "one two three four five six seven-and-eight-in-one nine";
  const std::vector<std::string> lines = wrap_text(text, 60, 10);
  EXPECT_EQ(fmt::format("{}", fmt::join(lines, " ")), text);
  EXPECT_GT(lines.size(), 3u);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i] != "seven-and-eight-in-one") EXPECT_LE(text_width(lines[i], 10), 60) << lines[i];
    if (i + 1 < lines.size()) {
      const std::string next = lines[i + 1].substr(0, lines[i + 1].find(' '));
      EXPECT_GT(text_width(lines[i] + " " + next, 10), 60) << lines[i] << " has room for " << next;
    }
  }
}

TEST(Svg, AHeadingMovesThePlotDown) {
  LineChart chart{.title = "t", .lines = {{"a", "#000", false, {1, 2}, {1, 2}}}};
  const std::string plain = svg_lines(chart);
  chart.heading =
      "a network and a machine whose names are long enough for a second line of the chart, and then for a third one";
  const std::string svg = svg_lines(chart);
  EXPECT_EQ(parse_markup(svg).error, "");
  const auto height = [](const std::string& of) { return std::stod(of.substr(of.find("0 0 400 ") + 8)); };
  const double rows = static_cast<double>(wrap_text(chart.heading, kChartWidth - 16, 10.5).size());
  EXPECT_GE(rows, 2);
  EXPECT_DOUBLE_EQ(height(svg) - height(plain), 15 * rows);
}

TEST(Svg, ABarIsAsLongAsItsValue) {
  BarChart chart;
  chart.bars = {{"a", "50", 50, "half", "#000"}, {"b", "100", 100, "full", "#000"}, {"c", "-5", -5, "below", "#000"}};
  chart.hi = 100;
  const std::string svg = svg_bars(chart);
  EXPECT_EQ(parse_markup(svg).error, "");
  const auto width_of = [&](const char* tooltip) {
    const size_t end = svg.find(std::string("<title>") + tooltip), at = svg.rfind("width=\"", end);
    return std::stod(svg.substr(at + 7));
  };
  EXPECT_GT(width_of("full"), 200);
  EXPECT_NEAR(width_of("half"), width_of("full") / 2, 0.1);
  EXPECT_EQ(width_of("below"), 0);
  EXPECT_EQ(svg.find("not at 0"), std::string::npos);
  chart.lo = 40;
  EXPECT_NE(svg_bars(chart).find("axis starts at 40, not at 0"), std::string::npos);
}

TEST(Svg, AHistogramMergesBinsAndKeepsItsShape) {
  Histogram h{-1, 3, std::vector<double>(256)};
  h.counts[0] = 1;    // with bins 1 to 3 in the first bar
  h.counts[128] = 4;  // the tallest bar, twice the height by square root
  const std::string svg = svg_histogram(h, "x", "#000");
  EXPECT_EQ(parse_markup(svg).error, "");
  EXPECT_EQ(occurrences(svg.substr(0, svg.find('Z')), "H"), 64);
  EXPECT_NE(svg.find("M0 78.0V41.0H3.1"), std::string::npos) << svg;
  EXPECT_NE(svg.find("V4.0H103.1"), std::string::npos) << svg;
  EXPECT_NE(svg.find("5 values in [-1.00, 3.00]"), std::string::npos);
}

TEST(Svg, AGapInALineStaysAGap) {
  LineChart chart;
  chart.lines = {{"a", "#000", false, {1, 2, 3, 4}, {1, 2, std::stod("nan"), 4}}};
  const std::string svg = svg_lines(chart);
  EXPECT_EQ(parse_markup(svg).error, "");
  EXPECT_EQ(occurrences(svg, "<circle"), 3);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(Svg, AHeatMapHasEveryCell) {
  const HeatMap map{"m", {"a", "b", "<c>"}, {8, 2, 0, 0, 10, 0, 5, 0, 5}};
  const std::string svg = svg_heat_map(map);
  EXPECT_EQ(parse_markup(svg).error, "");
  EXPECT_EQ(occurrences(svg, " taken for "), 9);
  EXPECT_NE(svg.find("&lt;c&gt; taken for a: 5 images (50.0 %)"), std::string::npos);
}

}  // namespace
}  // namespace octet
