#include "src/eval/headline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "src/eval/text_table.h"

namespace octet {
namespace {

/// Rows that LibTorch computes; every other row is an engine's.
constexpr std::array<const char*, 4> kTrainingRows = {"float", "ptq", "simulation", "qat_graph"};

const Row* first_engine_row(const Report& report) {
  for (const Row& row : report.rows) {
    const std::string& name = row.evaluation.name;
    if (std::find(kTrainingRows.begin(), kTrainingRows.end(), name) == kTrainingRows.end()) return &row;
  }
  return nullptr;
}

double ratio(double a, double b) { return a > 0 && b > 0 ? a / b : 0; }

}  // namespace

const Row* find_row(const Report& report, const std::string& name) {
  for (const Row& row : report.rows) {
    if (row.evaluation.name == name) return &row;
  }
  return nullptr;
}

Headline headline(const Report& report) {
  Headline h;
  h.float_row = find_row(report, "float");
  h.int8_row = first_engine_row(report);
  if (!h.int8_row) h.int8_row = find_row(report, "qat_graph");
  if (!h.int8_row) h.int8_row = find_row(report, "ptq");
  if (!h.both()) return h;
  const Evaluation &f = h.float_row->evaluation, &q = h.int8_row->evaluation;
  h.points_lost = 100 * (f.top1 - q.top1);
  h.size_ratio = ratio(static_cast<double>(h.float_row->bytes), static_cast<double>(h.int8_row->bytes));
  h.speed_up = ratio(q.images_per_second, f.images_per_second);
  return h;
}

std::string accuracy_sentence(const Headline& h) {
  if (!h.both()) return "";
  const std::string points = fmt::format("{:.2f} points of top-1", std::abs(h.points_lost));
  const std::string what = std::abs(h.points_lost) < 0.005 ? "int8 costs nothing"
                           : h.points_lost > 0             ? "int8 costs " + points
                                                           : "int8 gains " + points;
  return fmt::format("{} -> {}: {}", percent(h.float_row->evaluation.top1), percent(h.int8_row->evaluation.top1), what);
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
