// SPDX-License-Identifier: Apache-2.0
// report.html as a browser shows it: headless Chromium, where the machine has one.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "src/base/files.h"
#include "src/report/html.h"
#include "src/report/report.h"
#include "tests/data/images.h"
#include "tests/report/full_report.h"
#include "tests/report/markup.h"

namespace octet {
namespace {

using testing::full_report;
using testing::occurrences;
using testing::TemporaryFolder;

constexpr int kPhone = 390, kTablet = 720, kDesk = 1200;

/// What the page is asked once it is drawn: how wide it became, which charts have no size, the smallest letters.
constexpr const char* kQuestion = R"(<script>
addEventListener("load", () => {
  const charts = [...document.querySelectorAll("svg")].map(svg => svg.getBoundingClientRect());
  const letters = [...document.querySelectorAll("svg text")].map(text =>
    parseFloat(getComputedStyle(text).fontSize) * text.ownerSVGElement.getScreenCTM().a);
  parent.postMessage(JSON.stringify({
    width: document.documentElement.scrollWidth,
    charts: charts.length,
    undrawn: charts.filter(box => box.width < 100 || box.height < 20).length,
    letters: Math.min(...letters)}), "*");
});
</script>)";

class Browser : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
      if (std::system(("command -v " + std::string(name) + " >/dev/null").c_str()) == 0) program_ = name;
    if (program_.empty()) GTEST_SKIP() << "no Chromium here";
  }

  /// What it writes; what the page's console says must be nothing.
  std::string browse(const std::string& options) const {
    const std::string command =
        "timeout 60 " + program_ +
        " --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --enable-logging=stderr "
        "--user-data-dir='" +
        folder_.path("profile") + "' " + options + " >'" + folder_.path("out") + "' 2>'" + folder_.path("err") + "'";
    const int status = std::system(command.c_str());
    EXPECT_EQ(WEXITSTATUS(status), 0) << read_file(folder_.path("err"));
    EXPECT_EQ(read_file(folder_.path("err")).find("CONSOLE"), std::string::npos) << read_file(folder_.path("err"));
    return read_file(folder_.path("out"));
  }

  /// The page's answers on a screen of this width: a window cannot be as narrow as a phone, a frame can.
  nlohmann::json asked(std::string page, int width) const {
    page.insert(page.find("</head>"), kQuestion);
    folder_.write("page.html", page);
    folder_.write("frame.html",
                  "<!DOCTYPE html><body><script>addEventListener('message', event => {"
                  "document.body.textContent = 'answer' + event.data + 'end'; });</script>"
                  "<iframe src=\"page.html\" style=\"border: 0; height: 800px; width: " +
                      std::to_string(width) + "px\"></iframe></body>");
    const std::string dom = browse("--virtual-time-budget=5000 --window-size=1400,900 --dump-dom 'file://" +
                                   folder_.path("frame.html") + "'");
    const size_t from = dom.find("answer{"), to = dom.find("}end");
    if (from == std::string::npos || to == std::string::npos) {
      ADD_FAILURE() << "no answer: " << dom;
      return {};
    }
    return nlohmann::json::parse(dom.substr(from + 6, to + 1 - from - 6));
  }

  TemporaryFolder folder_;
  std::string program_;
};

Report running_report() {
  Report report = full_report(10);
  report.rows.clear();
  report.layers.clear();
  report.comparison = {};
  report.state = {"Running: qat: epoch 3 of 10 is done, about 4 min to go", true};
  return report;
}

/// A page of many layers with long names, as octet search and analyze write it.
std::string page_of_layers() {
  TextTable table({{"layer", Align::left},
                   {"op", Align::left},
                   {"worst channels", Align::left},
                   {"weights"},
                   {"codes"},
                   {"alone dB"},
                   {"same class"},
                   {"all but it dB"},
                   {"same class"},
                   {"output dB"}});
  BarChart bars{.title = "b", .axis_label = "dB"};
  CellMap cells{.title = "c", .row_name = "layer", .column_name = "plan: mean bits of a weight", .scale = {8, 4}};
  for (int plan = 0; plan < 14; ++plan) cells.columns.push_back("4.25");
  for (int layer = 0; layer < 50; ++layer) {
    const std::string name = "features." + std::to_string(layer) + ".block.0.depthwise";
    table.add_row({name, "depthwise_conv2d", "10: 34.4, 1: 34.5, 14: 34.7", "8", "8", "12.3", "100.0 %", "12.3",
                   "100.0 %", "12.3"});
    bars.bars.push_back({.label = name, .value = layer + 0.5, .tooltip = name});
    cells.rows.push_back(name);
    cells.values.insert(cells.values.end(), cells.columns.size(), layer % 2 == 0 ? 8 : 4);
  }
  return html_cards_page("runs/" + std::string(60, 'r'), "layers",
                         {{Card::Kind::good, "n", "12.3 dB", std::string(40, 'w')}},
                         "<div class=\"figures\">" + decibel_figures(bars, "bars") + cell_figures(cells, "cells") +
                             "</div>" + html_table(table, 3));
}

TEST_F(Browser, DrawsEveryChartOnEveryScreen) {
  for (const std::string& page :
       {report_html(full_report(10)), report_html(full_report(40)), report_html(running_report()), page_of_layers()}) {
    for (const int width : {kPhone, kTablet, kDesk}) {
      const nlohmann::json answer = asked(page, width);
      ASSERT_TRUE(answer.is_object());
      EXPECT_EQ(answer["charts"], occurrences(page, "<svg ")) << width;
      EXPECT_EQ(answer["undrawn"], 0) << width;
      EXPECT_LE(answer["width"], width) << "wider than the screen";
      EXPECT_GE(answer["letters"], 9.0) << "too small to read at " << width;
    }
  }
}

TEST_F(Browser, PrintsOnPaper) {
  folder_.write("page.html", report_html(full_report(10)));
  browse("--print-to-pdf='" + folder_.path("page.pdf") + "' --no-pdf-header-footer 'file://" +
         folder_.path("page.html") + "'");
  const std::string pdf = read_file(folder_.path("page.pdf"));
  EXPECT_EQ(pdf.substr(0, 5), "%PDF-");
  const int pages = occurrences(pdf, "/Type /Page\n");
  EXPECT_GE(pages, 2);
  EXPECT_LE(pages, 8);
}

}  // namespace
}  // namespace octet
