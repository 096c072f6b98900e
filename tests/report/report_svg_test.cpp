// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "src/report/html.h"
#include "src/report/report.h"
#include "tests/report/full_report.h"
#include "tests/report/markup.h"

namespace octet {
namespace {

using testing::full_report;
using testing::occurrences;
using testing::parse_markup;

TEST(ReportSvg, ShowsTheResultsInAnImageThatStandsAlone) {
  const std::string svg = report_svg(full_report(10));
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 820 ")) << svg.substr(0, 80);
  const testing::Markup markup = parse_markup(svg);
  EXPECT_EQ(markup.error, "");
  for (const char* words :
       {"run <one> & \"two\"", "resnet20, trained for int8", "91.73 %", "0.04 points", "4.0\xC3\x97 smaller",
        "7.5\xC3\x97 as fast", "of 1.50 k in 3 programs", "100 images", "91.42", "not at 0", "weights", "outputs"}) {
    EXPECT_NE(markup.text.find(words), std::string::npos) << words << " in: " << markup.text;
  }
  for (const char* loads : {"https:", "<script", "<image", "href", "@import", "url("})
    EXPECT_EQ(svg.find(loads), std::string::npos) << loads;
  EXPECT_EQ(occurrences(svg, "http:"), 1);  // the name of the language, which nobody loads
  EXPECT_LT(svg.size(), 40u << 10);
}

/// Dark text needs a light ground, whatever the page has.
TEST(ReportSvg, HasAGroundOfItsOwn) {
  const std::string svg = report_svg(full_report(10));
  const size_t box = svg.find("viewBox=\"0 0 ") + 13;
  const std::string size = svg.substr(box, svg.find('"', box) - box);
  const size_t space = size.find(' ');
  EXPECT_NE(svg.find("<rect x=\"0\" y=\"0\" width=\"" + size.substr(0, space) + "\" height=\"" +
                     size.substr(space + 1) + "\" fill=\"#fff\""),
            std::string::npos)
      << size;
}

/// Name, value and what it says of each card lie in its frame, one under the other.
TEST(ReportSvg, TheTextOfACardIsInsideOfIt) {
  const Report report = full_report(10);
  const std::string svg = report_svg(report);
  const auto numbers = [&](const std::string& element, const char* format, auto*... values) {
    return std::sscanf(element.c_str(), format, values...) == static_cast<int>(sizeof...(values));
  };
  std::vector<std::string> elements;
  std::istringstream lines(svg);
  for (std::string line; std::getline(lines, line);) elements.push_back(line);
  size_t cards = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    double x, y, width, height;
    if (elements[i].find("stroke=\"#d9dee4\"") == std::string::npos ||
        !numbers(elements[i], "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\"", &x, &y, &width, &height))
      continue;
    double above = y;  // the three lines are drawn right after the frame and the bar on it
    std::string words;
    for (size_t line = i + 2; line < i + 5; ++line) {
      double left = 0, base = 0, size = 0;
      ASSERT_TRUE(numbers(elements.at(line), "<text x=\"%lf\" y=\"%lf\" font-size=\"%lf\"", &left, &base, &size))
          << elements[line];
      EXPECT_TRUE(left > x && left < x + width) << elements[line];
      EXPECT_GE(base - size, above) << elements[line];
      EXPECT_LT(base, y + height) << elements[line];
      above = base;
      words += parse_markup(elements[line]).text + "\n";
    }
    const Card card = result_cards(report).at(cards++);
    EXPECT_TRUE(words.starts_with(card.name + "\n" + card.value + "\n")) << words;
  }
  EXPECT_EQ(cards, result_cards(report).size());
}

TEST(ReportSvg, AnEmptyReportIsAnImage) {
  const testing::Markup markup = parse_markup(report_svg(Report{}));
  EXPECT_EQ(markup.error, "");
  EXPECT_NE(markup.text.find("not compared"), std::string::npos);
}

}  // namespace
}  // namespace octet
