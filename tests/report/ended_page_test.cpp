// SPDX-License-Identifier: Apache-2.0
// The page of a run that goes on, and what becomes of it once its process has ended without a word.
#include <gtest/gtest.h>

#include "src/report/report.h"
#include "tests/data/images.h"
#include "tests/report/full_report.h"
#include "tests/report/markup.h"

namespace octet {
namespace {

using testing::full_report, testing::occurrences, testing::parse_markup;

Report overdue_report() {
  Report report;
  report.title = "run";
  report.epochs = full_report(10).epochs;
  report.state = {.text = "Running: qat <3 of 10>",
                  .running = true,
                  .written = 1'760'000'000,
                  .patience = 600,
                  .overdue = "process 7 on \"host\" may have ended"};
  return report;
}

TEST(EndedPage, ARunningPageKnowsWhenItIsOverdue) {
  const std::string page = report_html(overdue_report());
  EXPECT_EQ(parse_markup(page).error, "");
  EXPECT_EQ(occurrences(page, "<script>"), 1);
  EXPECT_EQ(occurrences(page, "src="), 0);
  EXPECT_NE(page.find("Date.now() / 1000 - 1760000000"), std::string::npos);
  EXPECT_NE(page.find("if (silent > 600)"), std::string::npos);
  EXPECT_NE(page.find("data-overdue=\"process 7 on &quot;host&quot; may have ended\""), std::string::npos);
}

TEST(EndedPage, SaysWhyAndIsNotLoadedAgain) {
  const std::string page = report_html(overdue_report());
  const std::string ended = ended_page(page, "Stopped: killed <9>").value();
  EXPECT_EQ(parse_markup(ended).error, "");
  EXPECT_EQ(occurrences(ended, "<p class=\"state\">Stopped: killed &lt;9&gt;</p>"), 1);
  for (const char* gone : {"Running: ", "refresh", "<script>"}) EXPECT_EQ(occurrences(ended, gone), 0) << gone;
  Report stopped = overdue_report();
  stopped.state = {.text = "Stopped: killed <9>"};
  EXPECT_EQ(ended, report_html(stopped));  // all else is as it was
}

/// What a command says of a run that lacks what it makes at its end.
TEST(EndedPage, TellsWhyARunIsUnfinished) {
  const testing::TemporaryFolder folder;
  const auto why = [&](const std::string& state, bool running) {
    Report report = overdue_report();
    report.state.text = state;
    report.state.running = running;
    folder.write("report.html", report_html(report));
    return why_unfinished(folder.path("report.html"), "my runs/a");
  };
  const std::string resume = "finish it with octet train 'my runs/a' --resume";
  EXPECT_EQ(why_unfinished(folder.path("none.html"), "my runs/a"), "; " + resume);
  EXPECT_EQ(why("", false), "; " + resume);
  EXPECT_EQ(why("Stopped: <disk> & \"it\" &lt; 'full'", false), ". Stopped: <disk> & \"it\" &lt; 'full'; " + resume);
  EXPECT_EQ(why("Running: qat: epoch 3 of 10 is done", true),
            ". Running: qat: epoch 3 of 10 is done; if its process has ended, " + resume);
  for (const char* with_cure : {"Stopped: training diverged: lower it", "Stopped: no GPU; octet train X --resume"})
    EXPECT_EQ(why(with_cure, false), std::string(". ") + with_cure);
}

TEST(EndedPage, OtherPagesStayAsTheyAre) {
  EXPECT_FALSE(ended_page(report_html(full_report(10)), "x").has_value());
  Report stopped;
  stopped.state = {.text = "Stopped: Running: "};
  EXPECT_FALSE(ended_page(report_html(stopped), "x").has_value());
  EXPECT_FALSE(ended_page("", "x").has_value());
}

}  // namespace
}  // namespace octet
