#include <fmt/format.h>

#include <algorithm>

#include "src/report/svg.h"

namespace octet {
namespace {

constexpr double kPitch = 15, kFont = 10;
constexpr Rgb kHue{0, 114, 178};

/// Of the scale's first value 0.1, of its last 1.
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

}  // namespace octet
