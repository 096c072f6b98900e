// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "src/report/report.h"
#include "tests/report/full_report.h"
#include "tests/report/markup.h"

namespace octet {
namespace {

using testing::full_report;
using testing::occurrences;
using testing::parse_markup;

TEST(ReportSvg, ShowsTheResultsInAPictureThatStandsAlone) {
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

TEST(ReportSvg, AnEmptyReportIsAPicture) {
  const testing::Markup markup = parse_markup(report_svg(Report{}));
  EXPECT_EQ(markup.error, "");
  EXPECT_NE(markup.text.find("not compared"), std::string::npos);
}

}  // namespace
}  // namespace octet
