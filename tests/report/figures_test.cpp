// SPDX-License-Identifier: Apache-2.0
// The parts of a page: what stands in a table and in charts, and where long ones are cut.
#include "src/report/html.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/report/markup.h"

namespace octet {
namespace {

using testing::occurrences;
using testing::parse_markup;

constexpr const char* kFrame = "fill=\"none\" stroke=\"#1c2530\" stroke-width=\"1.5\"";

CellMap cells(size_t rows, size_t columns) {
  CellMap map{.title = "t", .row_name = "layer", .column_name = "plan", .scale = {8, 4, 2}};
  for (size_t c = 0; c < columns; ++c) map.columns.push_back("p" + std::to_string(c));
  for (size_t r = 0; r < rows; ++r) map.rows.push_back("<" + std::to_string(r) + ">");
  for (size_t i = 0; i < rows * columns; ++i) map.values.push_back(map.scale[i % 3]);
  return map;
}

/// The element that a tooltip belongs to.
std::string element_of(const std::string& svg, const std::string& tooltip) {
  const size_t at = svg.find("<title>" + tooltip + "</title>");
  if (at == std::string::npos) return "";
  return svg.substr(svg.rfind('<', at - 1), at - svg.rfind('<', at - 1));
}

TEST(Figures, ACellHasItsValueAndTheColourOfItsPlaceInTheScale) {
  CellMap map = cells(2, 3);
  const std::string svg = svg_cells(map);
  EXPECT_EQ(parse_markup(svg).error, "");
  EXPECT_NE(element_of(svg, "&lt;1&gt;, p0: 8").find(shade({0, 114, 178}, 0.1)), std::string::npos) << svg;
  EXPECT_NE(element_of(svg, "&lt;1&gt;, p1: 4").find(shade({0, 114, 178}, 0.55)), std::string::npos) << svg;
  EXPECT_NE(element_of(svg, "&lt;1&gt;, p2: 2").find(shade({0, 114, 178}, 1)), std::string::npos) << svg;
  EXPECT_EQ(occurrences(svg, "style=\"fill:#fff\">2</text>"), 2);  // white on the darkest
  EXPECT_EQ(occurrences(svg, "style=\"fill:#1c2530\">8</text>"), 2);
  map.values.assign(6, 4);  // the same colour, whatever else there is
  EXPECT_NE(element_of(svg_cells(map), "&lt;0&gt;, p0: 4").find(shade({0, 114, 178}, 0.55)), std::string::npos);
}

TEST(Figures, OnlyAStrongColumnIsFramed) {
  CellMap map = cells(2, 3);
  EXPECT_EQ(occurrences(svg_cells(map), kFrame), 0);
  map.strong_column = 1;
  const std::string svg = svg_cells(map);
  EXPECT_EQ(occurrences(svg, kFrame), 1);
  const auto x_of = [](const std::string& element) { return element.substr(element.find("x=\""), 8); };
  const size_t frame = svg.rfind("<rect", svg.find(kFrame));
  EXPECT_EQ(x_of(svg.substr(frame)), x_of(element_of(svg, "&lt;0&gt;, p1: 4")));
  EXPECT_EQ(occurrences(svg, "font-weight=\"600\">p1<"), 1);
}

TEST(Figures, LabelsStandUprightWhereColumnsAreNarrow) {
  EXPECT_EQ(occurrences(svg_cells(cells(1, 8)), "rotate(-90"), 0);
  EXPECT_EQ(occurrences(svg_cells(cells(1, 30)), "rotate(-90"), 30);
}

TEST(Figures, AMapIsCutIntoEqualPartsAndLosesNoCell) {
  CellMap map = cells(50, 17);
  map.strong_column = 16;
  const std::string html = cell_figures(map, "under it");
  EXPECT_EQ(parse_markup(html).error, "");
  EXPECT_EQ(occurrences(html, "<svg "), 4);
  EXPECT_EQ(occurrences(html, kFrame), 2);  // above and below
  EXPECT_EQ(occurrences(html, "font-weight=\"600\">p16<"), 2);
  EXPECT_EQ(occurrences(html, "<figcaption>under it</figcaption>"), 1);
  EXPECT_TRUE(html.ends_with("<figcaption>under it</figcaption></figure>\n"));
  for (size_t r = 0; r < 50; ++r) {
    for (size_t c = 0; c < 17; ++c) {
      const std::string tooltip = "<title>&lt;" + std::to_string(r) + "&gt;, p" + std::to_string(c) + ": " +
                                  std::to_string(map.values[r * 17 + c]) + "</title>";
      EXPECT_EQ(occurrences(html, tooltip), 1) << tooltip;
    }
  }
  EXPECT_EQ(occurrences(cell_figures(cells(48, 16)), "<svg "), 1);
  EXPECT_EQ(cell_figures(CellMap{}), "");
}

TEST(Figures, BarsAreCutAt32OfTheSameAxis) {
  BarChart chart{.title = "t", .axis_label = "dB"};
  for (int i = 0; i < 32; ++i) chart.bars.push_back({.label = "b", .value = 5, .tooltip = "of " + std::to_string(i)});
  EXPECT_EQ(occurrences(bar_figures(chart), "<svg "), 1);
  chart.bars.push_back({.label = "b", .value = 97, .tooltip = "of 32"});
  const std::string html = decibel_figures(chart, "under it");
  EXPECT_EQ(parse_markup(html).error, "");
  EXPECT_EQ(occurrences(html, "<svg "), 2);
  EXPECT_EQ(occurrences(html, ">100</text>"), 2) << "both parts end at 100 dB";
  EXPECT_TRUE(html.ends_with("<figcaption>under it</figcaption></figure>\n"));
  EXPECT_EQ(occurrences(html, "figcaption>"), 2);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(occurrences(html, "<title>of " + std::to_string(i) + ": 5.0 dB<"), 1) << i;
  EXPECT_EQ(occurrences(html, "<title>of 32: 97.0 dB<"), 1);
  EXPECT_EQ(occurrences(html, colour::kBlue), 33);
}

double width_of(const std::string& html, const std::string& tooltip) {
  const std::string rect = element_of(html, tooltip);
  return std::stod(rect.substr(rect.find("width=\"") + 7));
}

TEST(Figures, MoreNoiseThanSignalIsAShorterBarAndNotNone) {
  BarChart chart;
  chart.bars = {{.label = "a", .value = 10, .tooltip = "a"},
                {.label = "b", .value = -2, .tooltip = "b"},
                {.label = "c", .value = -6, .tooltip = "c"}};
  const std::string html = decibel_figures(chart);
  EXPECT_NEAR(width_of(html, "b: -2.0 dB"), 0.4 * width_of(html, "a: 10.0 dB"), 0.11);  // of an axis from -10 to 10
  EXPECT_NEAR(width_of(html, "c: -6.0 dB"), 0.2 * width_of(html, "a: 10.0 dB"), 0.11);
  EXPECT_EQ(occurrences(html, "(axis starts at -10, not at 0)"), 1);
}

TEST(Figures, AnInfiniteRatioIsAFullBarThatSaysSo) {
  BarChart chart;
  chart.bars = {{.label = "a", .value = 20, .tooltip = "a"},
                {.label = "b", .value = std::numeric_limits<double>::infinity(), .tooltip = "b"}};
  const std::string html = decibel_figures(chart);
  EXPECT_DOUBLE_EQ(width_of(html, "b: lossless"), width_of(html, "a: 20.0 dB"));  // of an axis that ends at 20
  EXPECT_EQ(occurrences(html, ">lossless</text>"), 1);
}

TEST(Figures, ATableNamesItsCellsAndMarksOneRow) {
  TextTable table({{"layer", Align::left}, {"lost <dB>"}, {"", Align::left}});
  table.add_row({"a.b", "1 & 2", ""});
  table.add_row({"c", "3", "chosen"});
  const std::string html = html_table(table, 1);
  EXPECT_EQ(parse_markup(html).error, "");
  EXPECT_EQ(occurrences(html, "<th scope=\"col\">lost &lt;dB&gt;</th>"), 1);
  EXPECT_EQ(occurrences(html, "<th scope=\"row\" data-label=\"layer\" class=\"left\"><span>a.<wbr/>b</span></th>"), 1);
  EXPECT_EQ(occurrences(html, "<td data-label=\"lost &lt;dB&gt;\">1 &amp; 2</td>"), 1);
  EXPECT_EQ(occurrences(html, "<tr class=\"ship\"><th scope=\"row\" data-label=\"layer\" class=\"left\"><span>c<"), 1);
  EXPECT_EQ(occurrences(html, "class=\"ship\""), 1);
  EXPECT_EQ(occurrences(html_table(table), "class=\"ship\""), 0);
}

TEST(Figures, APageOfCardsIsWellFormed) {
  const std::string html = html_cards_page("runs/<a>", "bits & layers", {{Card::Kind::bad, "<n>", "1 < 2", "\"w\""}},
                                           html_section("plans", "A & B", "<p>text</p>\n"));
  const testing::Markup page = parse_markup(html);
  EXPECT_EQ(page.error, "");
  for (const char* words : {"runs/<a>, bits & layers", "<n>1 < 2\"w\"", "A & B\ntext"})
    EXPECT_NE(page.text.find(words), std::string::npos) << words << page.text;
  EXPECT_EQ(occurrences(html, "<div class=\"card bad\">"), 1);
  EXPECT_EQ(occurrences(html, "<section id=\"plans\"><h2>"), 1);
}

}  // namespace
}  // namespace octet
