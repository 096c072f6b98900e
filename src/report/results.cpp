#include "src/report/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/common/text_table.h"
#include "src/report/headline.h"
#include "src/report/html.h"

namespace octet {
namespace {

constexpr const char* kArrow = " \xE2\x86\x92 ";  // right arrow
constexpr const char* kTimes = "\xC3\x97";        // multiplication sign

Card accuracy_card(const Headline& h) {
  const double score = h.int8_row->evaluation.score();
  const std::string name = score_names(h.int8_row->evaluation.task.labels).score;
  if (!h.float_row) return {Card::Kind::plain, "int8 " + name, percent(score), h.int8_row->evaluation.name};
  const auto change = [](double lost) {
    return fmt::format("{}{:.2f}", lost > 0 ? "\xE2\x88\x92" : "+", std::abs(lost));
  };
  return {Card::Kind::usual, "int8 against " + h.baseline->evaluation.name, change(h.lost.points) + " points",
          fmt::format("{}{}{} {}; 95 % interval {} to {}", percent(h.baseline->evaluation.score()), kArrow,
                      percent(score), name, change(h.lost.high), change(h.lost.low))};
}

Card codes_card(const Comparison& c) {
  if (c.codes() == 0) return {Card::Kind::plain, "differing codes", "not compared", "run octet compare"};
  if (c.constants.wrong > 0) {
    return {Card::Kind::bad, "wrong constants", with_thousands(c.constants.wrong),
            fmt::format("of {}, which engines and QAT graph share", with_thousands(c.constants.count()))};
  }
  if (!c.promised()) return {Card::Kind::plain, "differing codes", "not promised", "by any engine of this run"};
  return {c.identical() ? Card::Kind::good : Card::Kind::bad, "differing codes", with_thousands(c.differing_codes()),
          fmt::format("of {} in {} programs over {}", human_count(static_cast<double>(c.codes())),
                      1 + std::count(c.exact.begin(), c.exact.end(), true), counted(c.images, "image"))};
}

}  // namespace

std::vector<Card> result_cards(const Report& report) {
  const Headline h = headline(report);
  std::vector<Card> cards;
  if (h.int8_row) cards.push_back(accuracy_card(h));
  cards.push_back(codes_card(report.comparison));
  if (h.size_ratio > 0) {
    cards.push_back({Card::Kind::usual, "size", fmt::format("{:.1f}{} smaller", h.size_ratio, kTimes),
                     human_bytes(static_cast<double>(h.float_row->bytes)) + kArrow +
                         human_bytes(static_cast<double>(h.int8_row->bytes)) + " on disk"});
  }
  if (h.speed_up > 0) {
    cards.push_back({Card::Kind::usual, "speed",
                     fmt::format("{:.1f}{} {}", h.speed_up, kTimes, h.speed_up >= 1 ? "as fast" : "the rate"),
                     decimal(h.float_row->evaluation.images_per_second) + kArrow +
                         decimal(h.int8_row->evaluation.images_per_second) + " images/s"});
  }
  return cards;
}

BarChart accuracy_chart(const Report& report) {
  BarChart chart;
  const ScoreNames& names = score_names(report.labels);
  chart.title = fmt::format("Every network's {}", names.score);
  chart.axis_label = fmt::format("{}, %", names.score);
  double lo = 100, hi = 0;
  const Row* int8_row = headline(report).int8_row;
  for (const Row& row : report.rows) {
    const double score = 100 * row.evaluation.score();
    lo = std::min(lo, score);
    hi = std::max(hi, score);
    const bool is_float = row.evaluation.name == "float" || row.evaluation.name == "float_control";
    const char* hue = &row == int8_row ? colour::kVermillion : is_float ? colour::kBlue : colour::kSky;
    chart.bars.push_back({row.evaluation.name, fmt::format("{:.2f}", score), score,
                          fmt::format("{}: {} {}, {} {}", row.evaluation.name, names.score,
                                      percent(row.evaluation.score()), names.second, percent(row.evaluation.second())),
                          hue});
  }
  // Differences are tenths of points: zoom in on them, unless the axis would start near 0 anyway.
  const double step = std::max(0.5, std::pow(10.0, std::floor(std::log10(std::max(hi - lo, 0.1)))));
  chart.lo = std::max(0.0, std::floor((lo - std::max(hi - lo, 1.0)) / step) * step);
  if (chart.lo < 20) chart.lo = 0;
  chart.hi = chart.lo == 0 ? 100 : std::min(100.0, std::ceil((hi + 0.05) / step) * step);
  return chart;
}

}  // namespace octet
