// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/text.h"
#include "src/report/svg.h"

namespace octet {
namespace {

constexpr double kLeft = 52, kRight = kChartWidth - 10, kBottomMargin = 36, kPlotHeight = 170;
constexpr double kBandStrip = 15;  ///< height of the bands' names above the plot
constexpr int kMostDots = 60;      ///< longer lines have no dots

/// Returns whether a value is a number, and not so large that differences overflow.
bool drawable(double v) { return std::abs(v) < 1e300; }

struct Range {
  double lo = std::numeric_limits<double>::infinity(), hi = -std::numeric_limits<double>::infinity();
  void include(double v) {
    if (!drawable(v)) return;
    lo = std::min(lo, v);
    hi = std::max(hi, v);
  }
  /// Adds a margin at both ends; the range is never empty then.
  void pad(double share) {
    if (!(hi >= lo)) lo = 0, hi = 1;
    const double air = hi > lo ? share * (hi - lo) : std::max(0.5, std::abs(hi) * 0.1);
    lo -= air;
    hi += air;
  }
};

struct Frame {
  Range x, y;
  double top = 0, bottom = 0;
  double to_x(double v) const { return kLeft + (kRight - kLeft) * (v - x.lo) / (x.hi - x.lo); }
  double to_y(double v) const { return bottom - (bottom - top) * (v - y.lo) / (y.hi - y.lo); }
};

/// Draws heading and legend in as many rows as they need, and returns their height. With a null canvas it only
/// measures.
double draw_head(const LineChart& chart, Canvas* canvas) {
  double x = kLeft, y = 12 + draw_heading(chart.heading, canvas);
  for (const Line& line : chart.lines) {
    const double width = 24 + text_width(line.name, 10.5) + 14;
    if (x + width > kChartWidth && x > kLeft) x = kLeft, y += 15;
    if (canvas) {
      canvas->path(fmt::format("M{:.1f} {:.1f}h18", x, y - 4),
                   {.stroke = line.colour, .stroke_width = 2, .dash = line.dashed ? "4 3" : ""});
      canvas->text(x + 22, y, line.name, {.size = 10.5});
    }
    x += width;
  }
  return y + 8;
}

void draw_axes(const LineChart& chart, const Frame& frame, Canvas& canvas) {
  for (const Band& band : chart.bands) {
    const double x0 = std::max(kLeft, frame.to_x(band.lo)), x1 = std::min(kRight, frame.to_x(band.hi));
    canvas.rect({x0, frame.top - kBandStrip, x1 - x0, frame.bottom - frame.top + kBandStrip},
                {.fill = band.shaded ? "#eef3f7" : "#fff"});
    canvas.text((x0 + x1) / 2, frame.top - 4, band.name, {.size = 10, .anchor = Anchor::middle, .fill = "#55606c"});
  }
  const auto y_ticks = nice_ticks(frame.y.lo, frame.y.hi, 5);
  const auto y_labels = tick_labels(y_ticks);
  for (size_t i = 0; i < y_ticks.size(); ++i) {
    const double y = frame.to_y(y_ticks[i]);
    canvas.path(fmt::format("M{:.1f} {:.1f}H{:.1f}", kLeft, y, kRight), {.stroke = "#d9dee4", .stroke_width = 0.8});
    canvas.text(kLeft - 5, y + 3.5, y_labels[i], {.size = 10, .anchor = Anchor::end, .fill = "#55606c"});
  }
  const auto x_ticks = nice_ticks(std::ceil(frame.x.lo), frame.x.hi, 8);
  const bool whole = x_ticks.size() < 2 || x_ticks[1] - x_ticks[0] >= 1;  // ticks are at whole epochs
  for (const double tick : x_ticks) {
    if (!whole && tick != std::floor(tick)) continue;
    canvas.text(frame.to_x(tick), frame.bottom + 14, fmt::format("{:.0f}", tick),
                {.size = 10, .anchor = Anchor::middle, .fill = "#55606c"});
  }
  canvas.path(fmt::format("M{:.1f} {:.1f}V{:.1f}H{:.1f}", kLeft, frame.top, frame.bottom, kRight),
              {.stroke = "#1c2530"});
  canvas.text((kLeft + kRight) / 2, frame.bottom + 30, chart.x_label,
              {.size = 10.5, .anchor = Anchor::middle, .fill = "#55606c"});
  canvas.text(11, (frame.top + frame.bottom) / 2, chart.y_label,
              {.size = 10.5, .anchor = Anchor::middle, .fill = "#55606c", .rotate = -90});
}

void draw_line(const Line& line, const LineChart& chart, const Frame& frame, Canvas& canvas) {
  std::string d;
  bool drawing = false;
  for (size_t i = 0; i < line.x.size(); ++i) {
    if (!drawable(line.y[i])) {
      drawing = false;
      continue;
    }
    d += fmt::format("{}{:.1f} {:.1f}", drawing ? "L" : "M", frame.to_x(line.x[i]), frame.to_y(line.y[i]));
    drawing = true;
  }
  if (d.empty()) return;
  canvas.path(d, {.stroke = line.colour, .stroke_width = 2, .dash = line.dashed ? "4 3" : ""}, line.name);
  if (line.x.size() > kMostDots) return;
  for (size_t i = 0; i < line.x.size(); ++i) {
    if (!drawable(line.y[i])) continue;
    canvas.dot(frame.to_x(line.x[i]), frame.to_y(line.y[i]), line.colour,
               fmt::format("{}, {} {:.6g}: {}", line.name, chart.x_label, line.x[i], decimal(line.y[i], 4)));
  }
}

}  // namespace

std::string svg_lines(const LineChart& chart) {
  Frame frame;
  for (const Line& line : chart.lines) {
    for (const double x : line.x) frame.x.include(x);
    for (const double y : line.y) frame.y.include(y);
  }
  frame.x.pad(0.02);
  frame.y.pad(0.06);
  frame.top = draw_head(chart, nullptr) + (chart.bands.empty() ? 0 : kBandStrip);
  frame.bottom = frame.top + kPlotHeight;
  Canvas canvas(kChartWidth, frame.bottom + kBottomMargin, chart.title);
  draw_head(chart, &canvas);
  draw_axes(chart, frame, canvas);
  for (const Line& line : chart.lines) draw_line(line, chart, frame, canvas);
  return canvas.str();
}

}  // namespace octet
