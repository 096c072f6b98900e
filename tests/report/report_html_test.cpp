// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <regex>
#include <string>

#include "src/report/html.h"
#include "src/report/report.h"
#include "tests/report/full_report.h"
#include "tests/report/markup.h"

namespace octet {
namespace {

using testing::full_report;
using testing::Markup;
using testing::occurrences;
using testing::parse_markup;

void expect_self_contained(const std::string& html) {
  // Nothing to load: no address, no script, no style sheet or image from elsewhere.
  for (const char* loads :
       {"http:", "https:", "//", "<script", "<link", "<img", "<iframe", "@import", "url(", "src="}) {
    EXPECT_EQ(html.find(loads), std::string::npos) << loads;
  }
}

TEST(ReportHtml, IsWellFormedAndSelfContained) {
  for (const int classes : {3, 10, 18, 40}) {
    const std::string html = report_html(full_report(classes));
    EXPECT_EQ(parse_markup(html).error, "") << classes << " classes";
    expect_self_contained(html);
  }
}

TEST(ReportHtml, AnEmptyReportIsAPage) {
  const std::string html = report_html(Report{});
  EXPECT_EQ(parse_markup(html).error, "");
  EXPECT_EQ(html.find("id=\"accuracy\""), std::string::npos);
}

TEST(ReportHtml, ARunThatGoesOnSaysSoAndIsLoadedAgain) {
  Report report;
  report.epochs = full_report(10).epochs;
  report.state = {"Running: qat <3 of 10>", true};
  const std::string running = report_html(report);
  EXPECT_EQ(parse_markup(running).error, "");
  EXPECT_EQ(occurrences(running, "<meta http-equiv=\"refresh\" content=\"10\"/>"), 1);
  EXPECT_EQ(occurrences(running, "<p class=\"state running\">Running: qat &lt;3 of 10&gt;</p>"), 1);
  EXPECT_NE(running.find("<section id=\"training\""), std::string::npos);
  EXPECT_EQ(running.find("class=\"card"), std::string::npos);
  report.state = {"Stopped: loss is nan", false};
  const std::string stopped = report_html(report);
  EXPECT_EQ(stopped.find("http-equiv=\"refresh\""), std::string::npos);
  EXPECT_EQ(occurrences(stopped, "<p class=\"state\">Stopped: loss is nan</p>"), 1);
  const std::string finished = report_html(full_report(10));
  EXPECT_EQ(finished.find("http-equiv=\"refresh\""), std::string::npos);
  EXPECT_EQ(finished.find("<p class=\"state"), std::string::npos);
}

TEST(ReportHtml, ShowsEverything) {
  const Report report = full_report(10);
  const std::string html = report_html(report);
  for (const char* id : {"accuracy", "codes", "training", "layers", "confusion", "run"}) {
    EXPECT_EQ(occurrences(html, std::string("<section id=\"") + id + "\""), 1) << id;
    EXPECT_EQ(occurrences(html, std::string("<a href=\"#") + id + "\""), 1) << id;
  }
  const std::string text = parse_markup(html).text;
  for (const Row& row : report.rows) {
    EXPECT_EQ(occurrences(html, "<th scope=\"row\">" + row.evaluation.name + "</th>"), 1) << row.evaluation.name;
  }
  for (const char* words :
       {"91.73 %", "91.69 %", "0.04 points", "4.0\xC3\x97 smaller", "7.5\xC3\x97 as fast", "41.1 M multiply-adds",
        "identical: 0 of 1,500 codes differ in 3 programs over 100 images", "not at 0", "conv<1>", "conv3x3_avx2",
        "u8 scale 0.02 zero 3", "<class 9>", "octet train 'a & b.yaml' --set data.path=<x>", "path: \"<a> & b\"",
        "<GCC>", "4 min 21 s", "0123abcd"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words;
  }
  // accuracy, 4 curves, SQNR, 3 histograms (two weights and activations, one activations only), heat map
  EXPECT_EQ(occurrences(html, "<svg "), 10);
}

TEST(ReportHtml, ProcessesOfARunHaveARowEach) {
  const std::string html = report_html(full_report(10));
  EXPECT_EQ(occurrences(html, "<table id=\"ranks\" class=\"stack\">"), 1);
  EXPECT_EQ(occurrences(html,
                        "<td data-label=\"process\">1</td><td data-label=\"images/s\">750</td><td "
                        "data-label=\"exchanging\">6.2 %</td>"
                        "<td data-label=\"waiting\">1.0 %</td><td data-label=\"GPU memory\">2.50 GB</td>"),
            1);
  Report on_cpus = full_report(10);
  for (RankMetrics& rank : on_cpus.epochs.back().ranks) rank.gpu_memory_bytes = 0;
  EXPECT_EQ(occurrences(report_html(on_cpus),
                        "<td data-label=\"exchanging\">6.2 %</td><td data-label=\"waiting\">1.0 %</td>"
                        "<td data-label=\"GPU memory\">\xE2\x80\x93</td>"),
            1);
  Report alone = full_report(10);
  alone.epochs.back().ranks.clear();
  EXPECT_EQ(occurrences(report_html(alone), "<table id=\"ranks\" class=\"stack\">"), 0);
}

TEST(ReportHtml, ManyClassesBecomePairs) {
  const std::string html = report_html(full_report(40));
  EXPECT_EQ(html.find("Confusion matrix"), std::string::npos);
  const std::string text = parse_markup(html).text;
  const size_t first = text.find("<class 0><class 1>3");  // 3 of 12 images, before 1 of 10
  const size_t second = text.find("<class 2><class 0>1");
  ASSERT_NE(first, std::string::npos);
  ASSERT_NE(second, std::string::npos);
  EXPECT_LT(first, second);
  EXPECT_NE(text.find("25.0 %"), std::string::npos);
}

TEST(ReportHtml, ABrokenPromiseIsNamed) {
  Report report = full_report(10);
  report.comparison.layers[0].differing = {17, 0};
  report.comparison.layers[0].largest_lsb = {3, 0};
  const std::string text = parse_markup(report_html(report)).text;
  EXPECT_NE(text.find("BROKEN: first at conv<1>: cpu differs from qat_graph in 17 codes, largest 3 LSB"),
            std::string::npos);
  EXPECT_NE(text.find("conv<1> first to differ"), std::string::npos);
  EXPECT_EQ(text.find("identical:"), std::string::npos);
}

TEST(ReportHtml, WrongConstantsBreakThePromiseThoughNoCodeDiffers) {
  Report report = full_report(10);
  const std::string kept = parse_markup(report_html(report)).text;
  EXPECT_NE(kept.find("constants: 1,200 multipliers and biases"), std::string::npos);
  EXPECT_NE(kept.find("none is wrong."), std::string::npos);
  report.comparison.constants.wrong = 2;
  report.comparison.constants.first = {{"conv<1>", "multiplier", 7, 0.5, 0.25}};
  const std::string html = report_html(report), text = parse_markup(html).text;
  EXPECT_NE(html.find("<div class=\"card bad\"><span class=\"name\">wrong constants</span><b>2"), std::string::npos);
  EXPECT_NE(html.find("lead bad-text"), std::string::npos);
  EXPECT_NE(text.find("'conv<1>': multiplier 7 is 0.5, the trained weights give 0.25"), std::string::npos);
  EXPECT_EQ(html.find("lead good-text"), std::string::npos);
}

TEST(ReportHtml, AnInexactEngineIsCountedWithoutBreakingThePromise) {
  Report report = full_report(10);
  report.comparison.exact = {true, false};
  report.comparison.layers[0].differing = {0, 17};
  report.comparison.layers[0].largest_lsb = {0, 3};
  const std::string html = report_html(report), text = parse_markup(html).text;
  EXPECT_NE(text.find("identical: 0 of 1,500 codes differ in 2 programs"), std::string::npos);
  EXPECT_NE(text.find("reference promises no equal codes: 17 of 1,500 codes and logits differ (1.133 %)"),
            std::string::npos);
  EXPECT_EQ(text.find("first to differ"), std::string::npos);
  EXPECT_EQ(html.find("class=\"broken\""), std::string::npos);
}

TEST(ReportHtml, WhatNobodyPromisesIsNeitherGoodNorBad) {
  Report report = full_report(10);
  ASSERT_NE(report_html(report).find("<div class=\"card good\"><span class=\"name\">differing codes"),
            std::string::npos);
  report.comparison.exact = {false, false};
  const std::string html = report_html(report);
  EXPECT_NE(html.find("<div class=\"card plain\"><span class=\"name\">differing codes</span><b>not promised"),
            std::string::npos);
  EXPECT_EQ(html.find("lead good-text"), std::string::npos);
  EXPECT_EQ(html.find("lead bad-text"), std::string::npos);
}

TEST(ReportHtml, LayersNameTheirEngineAndKernel) {
  const std::string text = parse_markup(report_html(full_report(10))).text;
  EXPECT_NE(text.find("cpu \xC2\xB7 conv3x3_avx2"), std::string::npos);
}

TEST(ReportHtml, ALosslessLayerIsCalledSo) {
  Report report = full_report(10);
  report.layers[0].statistics.sqnr_db = report.layers[0].statistics.weight_sqnr_db =
      std::numeric_limits<double>::infinity();
  const std::string html = report_html(report), text = parse_markup(html).text;
  EXPECT_NE(text.find("conv<1> (conv2d): lossless"), std::string::npos);
  EXPECT_NE(text.find("weights, lossless"), std::string::npos);
  EXPECT_NE(text.find("activations, lossless"), std::string::npos);
}

TEST(ReportHtml, TheLossChartDrawsTheSameQuantityTwice) {
  const std::string drawn = report_html(full_report(10));
  Report report = full_report(10);
  for (EpochMetrics& epoch : report.epochs) epoch.train_loss += 1;  // label smoothing
  EXPECT_EQ(report_html(report), drawn);
  for (EpochMetrics& epoch : report.epochs) epoch.train_cross_entropy += 1;
  EXPECT_NE(report_html(report), drawn);
}

TEST(ReportHtml, AnEpochWithoutValidationHasNoPointAndTheLineGoesOn) {
  Report report = full_report(10);
  report.epochs[1].validation_loss = report.epochs[1].validation_top1 = std::nullopt;
  const std::string html = report_html(report);
  EXPECT_EQ(parse_markup(html).error, "");
  for (const int epoch : {1, 2, 3})  // once in the chart of losses, once in that of top-1
    EXPECT_EQ(occurrences(html, "<title>validation, epoch " + std::to_string(epoch) + ": "), epoch == 2 ? 0 : 2);
  const std::regex line("<path d=\"M[0-9. ]+L[0-9. ]+\"[^>]*><title>validation</title>");  // of two points
  EXPECT_EQ(std::distance(std::sregex_iterator(html.begin(), html.end(), line), std::sregex_iterator()), 2);
}

TEST(ReportHtml, OddNumbersStayMarkup) {
  Report report = full_report(10);
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  report.epochs[1].train_cross_entropy = nan;
  report.epochs[2].train_cross_entropy = inf;
  report.layers[0].statistics.sqnr_db = inf;
  report.layers[1].statistics.sqnr_db = -3;
  report.layers[1].statistics.activations = {0, 0, {5}};
  report.rows[0].evaluation.top1 = nan;
  const std::string html = report_html(report);
  EXPECT_EQ(parse_markup(html).error, "");
  // No coordinate is NaN or infinite.
  for (const std::string attribute : {"d", "x", "y", "width", "height", "cx", "cy", "viewBox"}) {
    const std::string start = " " + attribute + "=\"";
    for (size_t at = html.find(start); at != std::string::npos; at = html.find(start, at + 1)) {
      const size_t from = at + start.size();
      const std::string value = html.substr(from, html.find('"', from) - from);
      EXPECT_EQ(value.find_first_of("ni"), std::string::npos) << attribute << "=" << value;
    }
  }
}

TEST(Html, Escapes) {
  EXPECT_EQ(html_escape("<a href=\"x\">'&'</a>"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(html_escape("\xC3\xBC\xE2\x82\xAC\xF0\x9F\x98\x80\n\t"), "\xC3\xBC\xE2\x82\xAC\xF0\x9F\x98\x80\n\t");
  const std::string replaced = "\xEF\xBF\xBD";
  EXPECT_EQ(html_escape(std::string_view("a\0b\x1b", 4)), "a" + replaced + "b" + replaced);
  EXPECT_EQ(html_escape("\xC3"), replaced);                                // cut off
  EXPECT_EQ(html_escape("\xC0\xBC"), replaced + replaced);                 // overlong '<'
  EXPECT_EQ(html_escape("\xED\xA0\x80"), replaced + replaced + replaced);  // surrogate
  EXPECT_EQ(html_breakable("layer1.0<_a"), "layer1.<wbr/>0&lt;_<wbr/>a");
}

TEST(Markup, TheCheckItselfFails) {
  EXPECT_EQ(parse_markup("<p>a &amp; <b>b</b><br/></p>").error, "");
  EXPECT_NE(parse_markup("<p><b></p></b>").error, "");
  EXPECT_NE(parse_markup("<p>").error, "");
  EXPECT_NE(parse_markup("<p>a & b</p>").error, "");
  EXPECT_NE(parse_markup("<p x=\"a & b\"></p>").error, "");
  EXPECT_NE(parse_markup("<p x=y></p>").error, "");
}

}  // namespace
}  // namespace octet
