// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/base/text.h"
#include "src/report/svg.h"

namespace octet {
namespace {

constexpr double kPitch = 15, kFont = 10;
constexpr Rgb kHue{0, 114, 178};

/// Returns the opacity of a value: 0.1 at the low end of the scale, 1 at the high end.
double strength_of(int value, const std::vector<int>& scale) {
  const auto rank = static_cast<double>(std::find(scale.begin(), scale.end(), value) - scale.begin());
  return 0.1 + 0.9 * rank / static_cast<double>(std::max<size_t>(scale.size(), 2) - 1);
}

double widest(const std::vector<std::string>& texts, double at_least) {
  for (const std::string& text : texts) at_least = std::max(at_least, text_width(text, kFont));
  return at_least;
}

}  // namespace

std::string svg_cells(const CellMap& map) {
  const double label_width = std::min(widest(map.rows, 40), 0.42 * kChartWidth), left = label_width + 8;
  const double columns = static_cast<double>(std::max<size_t>(map.columns.size(), 1));
  const double cell = std::min(40.0, (kChartWidth - left - 2) / columns);
  const double column_width = widest(map.columns, 0);
  const bool upright = column_width + 4 > cell;
  const double top = upright ? 24 + column_width : 32;
  const double bottom = top + kPitch * static_cast<double>(map.rows.size());

  Canvas canvas(kChartWidth, bottom + 4, map.title);
  canvas.text(std::clamp(kChartWidth - text_width(map.column_name, kFont), 0.0, left), 11,
              fit_text(map.column_name, kChartWidth, kFont), {.size = kFont, .fill = "#55606c"});
  canvas.text(left - 5, top - 5, map.row_name, {.size = kFont, .anchor = Anchor::end, .fill = "#55606c"});
  for (size_t c = 0; c < map.columns.size(); ++c) {
    const double middle = left + (static_cast<double>(c) + 0.5) * cell;
    Canvas::TextStyle style{.size = kFont, .anchor = Anchor::middle, .strong = map.strong_column == c};
    if (upright) style.anchor = Anchor::start, style.rotate = -90;
    canvas.text(upright ? middle + kFont * 0.36 : middle, top - 5, map.columns[c], style);
  }
  for (size_t r = 0; r < map.rows.size(); ++r) {
    const double y = top + kPitch * static_cast<double>(r), baseline = y + kPitch / 2 + kFont * 0.36;
    canvas.text(left - 5, baseline, fit_text(map.rows[r], label_width, kFont), {.size = kFont, .anchor = Anchor::end},
                map.rows[r]);
    for (size_t c = 0; c < map.columns.size(); ++c) {
      const int value = map.values[r * map.columns.size() + c];
      const double strength = strength_of(value, map.scale), x = left + static_cast<double>(c) * cell;
      canvas.rect({x, y, cell, kPitch}, {.fill = shade(kHue, strength), .stroke = "#fff", .stroke_width = 0.6},
                  fmt::format("{}, {}: {}", map.rows[r], map.columns[c], value));
      canvas.text(x + cell / 2, baseline, std::to_string(value),
                  {.size = kFont, .anchor = Anchor::middle, .fill = strength > 0.85 ? "#fff" : "#1c2530"});
    }
  }
  if (map.strong_column)
    canvas.rect({left + static_cast<double>(*map.strong_column) * cell, top, cell, bottom - top},
                {.fill = "none", .stroke = "#1c2530", .stroke_width = 1.5});
  return canvas.str();
}

namespace {

constexpr size_t kMostClassesWithCounts = 12;  ///< with more classes, numbers do not fit their cells

constexpr Rgb kRightColor{0, 114, 178}, kWrongColor{213, 94, 0};

/// Returns for each cell its share of the label's images; 0 for labels without images.
std::vector<double> row_shares(const HeatMap& map) {
  const size_t n = map.labels.size();
  std::vector<double> shares(n * n);
  for (size_t row = 0; row < n; ++row) {
    long images = 0;
    for (size_t column = 0; column < n; ++column) images += map.counts[row * n + column];
    for (size_t column = 0; column < n && images > 0; ++column) {
      shares[row * n + column] = static_cast<double>(map.counts[row * n + column]) / static_cast<double>(images);
    }
  }
  return shares;
}

}  // namespace

std::string svg_heat_map(const HeatMap& map) {
  const size_t n = map.labels.size();
  const std::vector<double> shares = row_shares(map);
  double worst = 0;  // errors have their own colour scale: a good network would show none on that of right answers
  for (size_t i = 0; i < shares.size(); ++i) {
    if (i / n != i % n) worst = std::max(worst, shares[i]);
  }
  const double label_font = n > kMostClassesWithCounts ? 9 : 10.5;
  double widest = 0;
  for (const auto& label : map.labels) widest = std::max(widest, text_width(label, label_font));
  const double left = std::min(widest, 92.0) + 8;
  const double cell = (kChartWidth - left - 2) / static_cast<double>(n);
  const double top = left + 12;  // column labels are as long as row labels, and turned upright
  const double side = cell * static_cast<double>(n);

  Canvas canvas(kChartWidth, top + side + 40, map.title);
  canvas.text(left, 11, "columns: predicted, rows: label", {.size = 10, .fill = "#55606c"});
  for (size_t i = 0; i < n; ++i) {
    const double middle = (static_cast<double>(i) + 0.5) * cell;
    const std::string label = fit_text(map.labels[i], left - 8, label_font);
    canvas.text(left - 5, top + middle + label_font * 0.36, label, {.size = label_font, .anchor = Anchor::end},
                map.labels[i]);
    canvas.text(left + middle + label_font * 0.36, top - 5, label, {.size = label_font, .rotate = -90}, map.labels[i]);
  }
  for (size_t i = 0; i < shares.size(); ++i) {
    const size_t row = i / n, column = i % n;
    const bool right = row == column;
    const double strength = right ? shares[i] : worst > 0 ? std::sqrt(shares[i] / worst) * 0.9 : 0;
    const double x = left + static_cast<double>(column) * cell, y = top + static_cast<double>(row) * cell;
    canvas.rect({x, y, cell, cell},
                {.fill = shade(right ? kRightColor : kWrongColor, strength), .stroke = "#fff", .stroke_width = 0.6},
                fmt::format("{} taken for {}: {} ({})", map.labels[row], map.labels[column],
                            counted(map.counts[i], "image"), percent(shares[i], 1)));
    if (n <= kMostClassesWithCounts && map.counts[i] > 0) {
      const std::string count = std::to_string(map.counts[i]);
      const double font = std::min({10.5, cell * 0.42, 0.9 * cell / text_width(count, 1)});
      canvas.text(x + cell / 2, y + cell / 2 + font * 0.36, count,
                  {.size = font, .anchor = Anchor::middle, .fill = right && strength > 0.6 ? "#fff" : "#1c2530"});
    }
  }
  const double legend = top + side + 12;
  canvas.rect({left, legend, 14, 10}, {.fill = shade(kRightColor, 0.9)});
  canvas.text(left + 19, legend + 9, "right (share of the label)", {.size = 10});
  canvas.rect({left, legend + 14, 14, 10}, {.fill = shade(kWrongColor, 0.9)});
  canvas.text(left + 19, legend + 23, fmt::format("wrong: darkest {}, square-root scale", percent(worst, 1)),
              {.size = 10});
  return canvas.str();
}

}  // namespace octet
