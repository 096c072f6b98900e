#include "src/report/headline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "src/common/text_table.h"

namespace octet {
namespace {

const Row* first_engine_row(const Report& report) {
  for (const Row& row : report.rows) {
    if (is_engine_row(row.evaluation.name)) return &row;
  }
  return nullptr;
}

/// Rounded as it is printed, and never the zero below zero.
double hundredths(double points) { return std::round(100 * points) / 100 + 0.0; }

double ratio(double a, double b) { return a > 0 && b > 0 ? a / b : 0; }

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

Headline headline(const Report& report) {
  Headline h;
  h.float_row = find_row(report, "float");
  h.baseline = find_row(report, "float_control");
  if (!h.baseline) h.baseline = h.float_row;
  h.ptq_row = find_row(report, "ptq");
  h.int8_row = first_engine_row(report);
  if (!h.int8_row) h.int8_row = find_row(report, "qat_graph");
  if (!h.int8_row) h.int8_row = h.ptq_row;
  h.qat = std::any_of(report.epochs.begin(), report.epochs.end(),
                      [](const EpochMetrics& epoch) { return epoch.phase == "qat"; });
  if (!h.both()) return h;
  const Evaluation &f = h.float_row->evaluation, &q = h.int8_row->evaluation;
  h.lost = paired(h.baseline->evaluation, q);
  if (h.ptq_row) h.ptq_lost = paired(f, h.ptq_row->evaluation);
  if (h.ptq_row && h.qat) h.qat_points_back = paired(q, h.ptq_row->evaluation).points;
  h.size_ratio = ratio(static_cast<double>(h.float_row->bytes), static_cast<double>(h.int8_row->bytes));
  h.speed_up = ratio(q.images_per_second, f.images_per_second);
  return h;
}

std::string difference_sentence(const Evaluation& before, const Evaluation& after, const std::string& cause) {
  const Paired lost = paired(before, after);
  const std::string points =
      fmt::format("{:.2f} points of {}", std::abs(lost.points), score_names(before.task.labels).score);
  std::string what = fmt::format("{}{}, no difference that {} show", lost.points > 0 ? "-" : "+", points,
                                 counted(lost.images, "picture"));
  if (lost.told_apart()) what = fmt::format("{} {} {}", cause, lost.points > 0 ? "costs" : "gains", points);
  const char* pictures =
      before.task.pixels() ? "in {} pictures {} has more pixels right, in {} {}" : "{} only {} has right, {} only {}";
  return fmt::format("{} {} -> {} {}: {} (95 % interval {:+.2f} to {:+.2f}; {})", before.name, percent(before.score()),
                     after.name, percent(after.score()), what, hundredths(-lost.high), hundredths(-lost.low),
                     fmt::format(fmt::runtime(pictures), with_thousands(lost.only_first), before.name,
                                 with_thousands(lost.only_second), after.name));
}

std::vector<std::string> accuracy_sentences(const Headline& h) {
  if (!h.both()) return {};
  const bool trained_longer = h.qat && h.baseline == h.float_row;
  const char* cause = h.ptq_alone()    ? "post-training quantization"
                      : trained_longer ? "quantization with further training"
                                       : "quantization";
  std::vector<std::string> sentences = {difference_sentence(h.baseline->evaluation, h.int8_row->evaluation, cause)};
  if (h.ptq_row && h.qat && h.ptq_lost.told_apart() && h.ptq_lost.points > 0) {
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

}  // namespace octet
