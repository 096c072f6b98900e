#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/common/text_table.h"
#include "src/report/svg.h"

namespace octet {
namespace {

constexpr size_t kMostClassesWithCounts = 12;  ///< beyond, numbers would not fit their cells

constexpr Rgb kRight{0, 114, 178}, kWrong{213, 94, 0};

/// Share of a label's images in each cell; 0 for labels without images.
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
  double worst = 0;  // errors have a colour scale of their own, or a good network would show none
  for (size_t i = 0; i < shares.size(); ++i) {
    if (i / n != i % n) worst = std::max(worst, shares[i]);
  }
  const double label_font = n > kMostClassesWithCounts ? 9 : 10.5;
  double widest = 0;
  for (const auto& label : map.labels) widest = std::max(widest, text_width(label, label_font));
  const double left = std::min(widest, 92.0) + 8;
  const double cell = (kChartWidth - left - 2) / static_cast<double>(n);
  const double top = left + 12;  // column labels stand upright over their column
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
                {.fill = shade(right ? kRight : kWrong, strength), .stroke = "#fff", .stroke_width = 0.6},
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
  canvas.rect({left, legend, 14, 10}, {.fill = shade(kRight, 0.9)});
  canvas.text(left + 19, legend + 9, "right (share of the label)", {.size = 10});
  canvas.rect({left, legend + 14, 14, 10}, {.fill = shade(kWrong, 0.9)});
  canvas.text(left + 19, legend + 23, fmt::format("wrong: darkest {}, square-root scale", percent(worst, 1)),
              {.size = 10});
  return canvas.str();
}

}  // namespace octet
