// SPDX-License-Identifier: Apache-2.0
// The results of a report in a few figures, and the report as text for the terminal.
#include <fmt/format.h>

#include <algorithm>

#include "src/base/text.h"
#include "src/report/html.h"
#include "src/report/report.h"

namespace octet {
namespace {

const Row* first_engine_row(const Report& report) {
  for (const Row& row : report.rows) {
    if (is_engine_row(row.evaluation.name)) return &row;
  }
  return nullptr;
}

/// Returns the points rounded as they are printed, and never -0.
double hundredths(double points) { return std::round(100 * points) / 100 + 0.0; }

double ratio(double a, double b) { return a > 0 && b > 0 ? a / b : 0; }

/// Returns a headline that knows its rows alone.
Headline with_rows(const Report& report) {
  Headline h;
  h.float_row = find_row(report, "float");
  h.baseline = find_row(report, "float_control");
  if (!h.baseline) h.baseline = h.float_row;
  h.ptq_row = find_row(report, "ptq");
  h.int8_row = int8_row(report);
  h.qat = std::any_of(report.epochs.begin(), report.epochs.end(),
                      [](const EpochMetrics& epoch) { return epoch.phase == "qat"; });
  return h;
}

constexpr const char* kArrow = " \xE2\x86\x92 ";  // right arrow
constexpr const char* kTimes = "\xC3\x97";        // multiplication sign

Card accuracy_card(const Headline& h) {
  const double score = h.int8_row->evaluation.score();
  const std::string name = score_names(h.int8_row->evaluation.task.labels).score;
  if (!h.float_row) return {Card::Kind::plain, "int8 " + name, percent(score), h.int8_row->evaluation.name};
  const auto change = [](double lost) {
    return fmt::format("{}{:.2f}", lost > 0 ? "\xE2\x88\x92" : "+", std::abs(lost));
  };
  if (h.control_ruined()) {
    return {Card::Kind::plain, "int8 " + name, percent(score),
            fmt::format("float {} before training on, {} after: a control that is no measure of int8",
                        percent(h.float_row->evaluation.score()), percent(h.baseline->evaluation.score()))};
  }
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

const Row* find_row(const Report& report, const std::string& name) {
  for (const Row& row : report.rows) {
    if (row.evaluation.name == name) return &row;
  }
  return nullptr;
}

bool is_engine_row(const std::string& name) {
  static constexpr std::array kTrainingRows = {"float", "float_control", "ptq", "simulation", "qat_graph"};
  return std::find(kTrainingRows.begin(), kTrainingRows.end(), name) == kTrainingRows.end();
}

const Row* int8_row(const Report& report) {
  for (const Row* row : {first_engine_row(report), find_row(report, "qat_graph"), find_row(report, "ptq")})
    if (row) return row;
  return nullptr;
}

Headline headline(const Report& report) {
  Headline h = with_rows(report);
  if (!h.both()) return h;
  static_cast<Differences&>(h) = report.differences ? *report.differences : differences(report);
  const Evaluation &f = h.float_row->evaluation, &q = h.int8_row->evaluation;
  h.size_ratio = ratio(static_cast<double>(h.float_row->bytes), static_cast<double>(h.int8_row->bytes));
  h.speed_up = ratio(q.images_per_second, f.images_per_second);
  return h;
}

Differences differences(const Report& report) {
  const Headline h = with_rows(report);
  Differences d;
  if (!h.both()) return d;
  const Evaluation& int8 = h.int8_row->evaluation;
  d.lost = paired(h.baseline->evaluation, int8);
  if (h.ptq_row) d.ptq_lost = paired(h.float_row->evaluation, h.ptq_row->evaluation);
  if (h.baseline != h.float_row) d.control_lost = paired(h.float_row->evaluation, h.baseline->evaluation);
  if (h.ptq_row && h.qat) d.qat_points_back = paired(int8, h.ptq_row->evaluation).points;
  return d;
}

std::string difference_sentence(const Evaluation& before, const Evaluation& after, const Paired& lost,
                                const std::string& cause) {
  const std::string points =
      fmt::format("{:.2f} points of {}", std::abs(lost.points), score_names(before.task.labels).score);
  std::string what = fmt::format("{}{}, no difference that {} show", lost.points > 0 ? "-" : "+", points,
                                 counted(lost.images, "image"));
  if (lost.told_apart()) what = fmt::format("{} {} {}", cause, lost.points > 0 ? "costs" : "gains", points);
  const char* images = before.task.pixels()                  ? "; in {} images {} has more pixels right, in {} {}"
                       : before.task.labels == Labels::boxes ? ""
                                                             : "; {} only {} has right, {} only {}";
  return fmt::format("{} {} -> {} {}: {} (95 % interval {:+.2f} to {:+.2f}{})", before.name, percent(before.score()),
                     after.name, percent(after.score()), what, hundredths(-lost.high), hundredths(-lost.low),
                     fmt::format(fmt::runtime(images), with_thousands(lost.only_first), before.name,
                                 with_thousands(lost.only_second), after.name));
}

std::vector<std::string> accuracy_sentences(const Headline& h) {
  if (!h.both()) return {};
  const bool trained_longer = h.qat && h.baseline == h.float_row;
  const char* cause = h.ptq_alone()    ? "post-training quantization"
                      : trained_longer ? "quantization with further training"
                                       : "quantization";
  std::vector<std::string> sentences = {
      difference_sentence(h.baseline->evaluation, h.int8_row->evaluation, h.lost, cause)};
  if (h.control_ruined()) {
    sentences.push_back(fmt::format(
        "the float control is no measure of that: training on, at a rate that the int8 network bears, made the float "
        "network {:.2f} points worse ({} -> {})",
        h.control_lost.points, percent(h.float_row->evaluation.score()), percent(h.baseline->evaluation.score())));
  }
  if (h.ptq_row && h.qat && h.ptq_lost.is_loss()) {
    sentences.push_back(fmt::format(
        "post-training quantization alone loses {:.2f} points ({} -> {}); QAT gets {:.2f} back", h.ptq_lost.points,
        percent(h.float_row->evaluation.score()), percent(h.ptq_row->evaluation.score()), h.qat_points_back));
  }
  return sentences;
}

std::string shorter_rows(const Report& report) {
  std::string text;
  for (const Row& row : report.rows) {
    const Evaluation& e = row.evaluation;
    if (e.images == report.rows.front().evaluation.images) continue;
    text += fmt::format("; {}: the first {}", e.name, with_thousands(e.images));
  }
  return text;
}

std::string class_label(const Report& report, size_t index) {
  return index < report.class_names.size() ? report.class_names[index] : std::to_string(index);
}

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
  const ScoreNames& names = score_names(report.labels);
  BarChart chart{.title = fmt::format("Every network's {}", names.score),
                 .axis_label = fmt::format("{}, %", names.score)};
  double lo = 100, hi = 0;
  const Row* shipped = int8_row(report);
  for (const Row& row : report.rows) {
    const double score = 100 * row.evaluation.score();
    lo = std::min(lo, score);
    hi = std::max(hi, score);
    const bool is_float = row.evaluation.name == "float" || row.evaluation.name == "float_control";
    const char* hue = &row == shipped ? colour::kVermillion : is_float ? colour::kBlue : colour::kSky;
    chart.bars.push_back({row.evaluation.name, fmt::format("{:.2f}", score), score,
                          fmt::format("{}: {} {}, {} {}", row.evaluation.name, names.score,
                                      percent(row.evaluation.score()), names.second, percent(row.evaluation.second())),
                          hue});
  }
  // Differences are tenths of points, so the axis starts just below them, unless it would start near 0 anyway.
  const double step = std::max(0.5, std::pow(10.0, std::floor(std::log10(std::max(hi - lo, 0.1)))));
  chart.lo = std::max(0.0, std::floor((lo - std::max(hi - lo, 1.0)) / step) * step);
  if (chart.lo < 20) chart.lo = 0;
  chart.hi = chart.lo == 0 ? 100 : std::min(100.0, std::ceil((hi + 0.05) / step) * step);
  return chart;
}

void count_differing(std::vector<Row>& rows) {
  const auto graph =
      std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.evaluation.name == "qat_graph"; });
  if (graph == rows.end()) return;
  for (Row& row : rows) {
    if (&row != &*graph) row.differing = differing_predictions(row.evaluation, graph->evaluation);
  }
}

void add_kernels(std::vector<ReportLayer>& layers, const std::string& program, const std::vector<LayerInfo>& infos) {
  for (ReportLayer& layer : layers) {
    for (const LayerInfo& info : infos) {
      if (info.name == layer.statistics.name)
        layer.kernels.push_back({program, info.engine.empty() ? program : info.engine, info.kernel});
    }
  }
}

std::vector<std::string> evaluation_columns(const Report& report) {
  const ScoreNames& names = score_names(report.labels);
  return {names.score, names.second, "loss", "bytes", "images/s", "median", "p99", "differing"};
}

std::vector<std::string> evaluation_cells(const Row& row, const std::string& dash) {
  const Evaluation& e = row.evaluation;
  const auto if_known = [&](bool known, const std::string& text) { return known ? text : dash; };
  return {percent(e.score()),
          percent(e.second()),
          fmt::format("{:.4f}", e.loss),
          if_known(row.bytes > 0, human_bytes(static_cast<double>(row.bytes))),
          if_known(e.images_per_second > 0, decimal(e.images_per_second)),
          if_known(e.latency_runs > 0, human_seconds(e.latency_median_ms / 1e3)),
          if_known(e.latency_runs > 0, human_seconds(e.latency_p99_ms / 1e3)),
          if_known(row.differing >= 0, with_thousands(row.differing))};
}

std::string report_table(const Report& report) {
  std::vector<Column> columns = {{"network", Align::left}};
  for (const std::string& title : evaluation_columns(report)) columns.push_back({title});
  TextTable table(columns);
  for (const Row& row : report.rows) {
    std::vector<std::string> cells = evaluation_cells(row, "-");
    cells.insert(cells.begin(), row.evaluation.name);
    table.add_row(std::move(cells));
  }
  std::string text = table.render() + "\n";
  text += fmt::format("{}, {} multiply-adds an image", report.model,
                      human_count(static_cast<double>(report.multiply_adds)));
  if (!report.rows.empty()) text += ", " + counted(report.rows.front().evaluation.images, "test image");
  text += shorter_rows(report);
  text += "; median and p99: latency of one image; differing: predictions other than the QAT graph's\n";
  for (const std::string& sentence : accuracy_sentences(headline(report))) text += sentence + "\n";
  for (const std::string& note : report.notes) text += "note: " + note + "\n";
  return text;
}

}  // namespace octet
