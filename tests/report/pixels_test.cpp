// SPDX-License-Identifier: Apache-2.0
// The report of a network of segmentation: its score, its curves and its images.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "src/report/report.h"
#include "tests/report/full_report.h"
#include "tests/report/markup.h"

namespace octet {
namespace {

using testing::occurrences;
using testing::pixels_report;

TEST(PixelsReport, SaysMeanIouWhereAClassifierSaysTop1) {
  const Report report = pixels_report();
  const std::string table = report_table(report);
  EXPECT_NE(table.find("mean IoU"), std::string::npos) << table;
  EXPECT_EQ(table.find("top-"), std::string::npos) << table;
  // Class 0 of both images: float 5 of 6, cpu 4 of 6; class 1: 2 of 3, 2 of 4.
  const std::string sentence = accuracy_sentences(headline(report)).at(0);
  EXPECT_TRUE(
      sentence.starts_with("float 75.00 % -> cpu 58.33 %: -16.67 points of mean IoU, no difference that 2 "
                           "images show (95 % interval "))
      << sentence;
  EXPECT_TRUE(sentence.ends_with("; in 1 images float has more pixels right, in 0 cpu)")) << sentence;
}

TEST(PixelsReport, ShowsImages) {
  const std::string html = report_html(pixels_report());
  EXPECT_EQ(testing::parse_markup(html).error, "");
  EXPECT_EQ(html.find("top-1"), std::string::npos);
  EXPECT_EQ(occurrences(html, "<section id=\"images\""), 1);
  EXPECT_EQ(occurrences(html, "<a href=\"#images\""), 1);
  EXPECT_EQ(occurrences(html, "<img "), 5);  // image, truth, float, int8, where they differ
  EXPECT_EQ(occurrences(html, "src=\""), occurrences(html, "src=\"data:image/png;base64,iVBORw0KGgo"));
  EXPECT_NE(html.find("test[&lt;0&gt;]"), std::string::npos);
  EXPECT_NE(html.find("differing: 1 pixel"), std::string::npos);
  EXPECT_NE(html.find("on which cpu is furthest below float by mean IoU"), std::string::npos);
  EXPECT_NE(html.find("float, mean IoU 100.0 %"), std::string::npos);
  EXPECT_NE(html.find("cpu, mean IoU 50.0 %"), std::string::npos);
  EXPECT_NE(html.find("Mean IoU"), std::string::npos);
  const std::string classes = html.substr(html.find("<section id=\"classes\""));
  EXPECT_NE(classes.find("83.33 %"), std::string::npos);  // background of float: 5 of 6 pixels
  EXPECT_NE(classes.find("50.00 %"), std::string::npos);  // shapes of cpu: 2 of 4
  EXPECT_EQ(report_html(testing::full_report(10)).find("<img"), std::string::npos);
}

/// A class that no pixel has is there where a network finds it.
TEST(PixelsReport, ShowsClassesThatOneNetworkFinds) {
  Report report = pixels_report();
  for (const size_t at : {1u, 3u}) report.rows[0].evaluation.overlaps[at] = {0, 0};
  for (const size_t at : {1u, 3u}) report.rows[1].evaluation.overlaps[at] = {0, 3};
  const std::string html = report_html(report);
  const std::string classes = html.substr(html.find("<section id=\"classes\""));
  EXPECT_NE(classes.find("&lt;shape&gt;"), std::string::npos);
  EXPECT_NE(classes.find("0.00 %"), std::string::npos);
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

TEST(BoxesReport, ShowsApAndNoImageCount) {
  const Report report = testing::boxes_report();
  const std::string html = report_html(report);
  EXPECT_EQ(testing::parse_markup(html).error, "");
  EXPECT_EQ(html.find("top-1"), std::string::npos);
  EXPECT_NE(html.find("AP50"), std::string::npos);
  const std::string sentence = accuracy_sentences(headline(report)).front();
  EXPECT_TRUE(sentence.starts_with("float 90.00 % -> cpu 60.00 %: ")) << sentence;
  EXPECT_EQ(sentence.find("right"), std::string::npos) << sentence;
  EXPECT_EQ(occurrences(html, "<img "), 3);  // the labels, float, int8
  EXPECT_NE(html.find("test[&lt;7&gt;]"), std::string::npos);
  EXPECT_NE(html.find("float, AP 100.0 %"), std::string::npos);
  EXPECT_NE(html.find("cpu, AP 25.0 %"), std::string::npos);
  const std::string classes = html.substr(html.find("<section id=\"classes\""));
  EXPECT_NE(classes.find("&lt;cell&gt;"), std::string::npos);
  EXPECT_NE(classes.find("Precision by recall: &lt;cell&gt;"), std::string::npos);
  EXPECT_NE(classes.find("66.34 %"), std::string::npos) << "67 of 101 recalls are reached by int8";
  const auto cell = [](const char* title, const char* share) {
    return fmt::format("<td data-label=\"{}\">{} %</td>", title, share);
  };
  EXPECT_NE(
      classes.find(cell("AP75", "66.34") + cell("small", "100.00") + cell("medium", "100.00") + cell("large", "0.00")),
      std::string::npos)
      << classes;
  const auto row = nlohmann::json::parse(report_json(report))["rows"][1];
  EXPECT_NEAR(row["ap75"].get<double>(), 67.0 / 101, 1e-9);
  EXPECT_NEAR(row["ap_medium"].get<double>(), 1, 1e-12);
  EXPECT_EQ(row["ap_large"], 0);
  EXPECT_TRUE(nlohmann::json::parse(report_json(testing::pixels_report()))["rows"][1]["ap_small"].is_null());
  std::set<std::string> curves;
  for (size_t at = 0; (at = classes.find(" d=\"M", at)) != std::string::npos; ++at)
    if (const std::string path = classes.substr(at, classes.find('"', at + 5) - at); path.size() > 500)
      curves.insert(path);
  EXPECT_EQ(curves.size(), 2u);
  EXPECT_EQ(report_html(testing::full_report(10)).find("<section id=\"classes\""), std::string::npos);
  EXPECT_NEAR(headline(report).lost.points, 100.0 * 34 / 101, 1e-9);  // of recalls 0, 0.01 .. 1 those above 2/3
}

/// What was computed once is what all forms of a report show: none compares the networks again.
TEST(BoxesReport, DifferencesAreThoseOfTheReport) {
  Report report = testing::boxes_report();
  const auto forms = [&] {
    return std::vector{report_table(report), report_json(report), report_svg(report), report_html(report)};
  };
  const std::vector<std::string> anew = forms();
  report.differences = differences(report);
  EXPECT_EQ(forms(), anew);
  report.differences->lost.points = 12.34;
  const std::vector<std::string> given = forms();
  for (size_t i = 0; i < given.size(); ++i) {
    EXPECT_EQ(anew[i].find("12.34"), std::string::npos) << i;
    EXPECT_NE(given[i].find("12.34"), std::string::npos) << i;
  }
  EXPECT_NE(given[3].find("12.34"), given[3].rfind("12.34"));  // in a card and in a sentence
}

/// RFC 4648, of all three remainders: what a PNG's bytes end with is in the page.
TEST(PixelsReport, ImagesAreTheirPngs) {
  Report report = pixels_report();
  for (int width = 1; width <= 6; ++width) {
    ReportMasks& p = report.masks[0];
    const size_t size = static_cast<size_t>(width);
    p.image = {1, width, 1, std::vector<uint8_t>(size, 7)};
    p.truth = p.before = p.int8 = std::vector<int>(size);
    const std::string png = encode_png(p.image), html = report_html(report);
    const std::string before = "src=\"data:image/png;base64,";
    const size_t begin = html.find(before) + before.size(), end = html.find('"', begin);
    EXPECT_EQ(testing::from_base64(html.substr(begin, end - begin)), png);
  }
}

}  // namespace
}  // namespace octet
