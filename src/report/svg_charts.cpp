// SPDX-License-Identifier: Apache-2.0
// Charts with axes: lines and bars.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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

std::string svg_bars(const BarChart& chart) {
  const double font = std::min(11.0, chart.pitch * 0.66);
  double label_width = 40, value_width = 0;
  for (const Bar& bar : chart.bars) {
    label_width = std::max(label_width, text_width(bar.label, font));
    value_width = std::max(value_width, text_width(bar.text, font));
  }
  label_width = std::min(label_width, 0.42 * kChartWidth);
  const double left = label_width + 8, right = kChartWidth - value_width - 8;
  const double top = 4 + draw_heading(chart.heading, nullptr),
               bottom = top + chart.pitch * static_cast<double>(chart.bars.size());
  const bool broken = chart.lo != 0;
  const double span = chart.hi > chart.lo ? chart.hi - chart.lo : 1;
  const auto x_of = [&](double value) {
    return left + (right - left) * std::clamp((value - chart.lo) / span, 0.0, 1.0);
  };

  Canvas canvas(kChartWidth, bottom + 36, chart.title);
  draw_heading(chart.heading, &canvas);
  const std::vector<double> ticks = nice_ticks(chart.lo, chart.hi, 4);
  const std::vector<std::string> labels = tick_labels(ticks);
  for (size_t i = 0; i < ticks.size(); ++i) {
    const double x = x_of(ticks[i]);
    canvas.path(fmt::format("M{:.1f} {:.1f}V{:.1f}", x, top, bottom), {.stroke = "#d9dee4"});
    canvas.text(x, bottom + 13, labels[i], {.size = 10, .anchor = Anchor::middle, .fill = "#55606c"});
  }
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    const Bar& bar = chart.bars[i];
    const double y = top + chart.pitch * static_cast<double>(i), middle = y + chart.pitch / 2 + font * 0.36;
    const bool finite = std::isfinite(bar.value);
    const double end = std::isnan(bar.value) ? left : x_of(bar.value);
    canvas.text(left - 6, middle, fit_text(bar.label, label_width, font), {.size = font, .anchor = Anchor::end},
                bar.label);
    canvas.rect({left, y + chart.pitch * 0.14, end - left, chart.pitch * 0.72}, {.fill = bar.colour}, bar.tooltip);
    if (broken && finite && bar.value > chart.lo) {
      // Two slanted white cuts near the root of the bar show that the axis does not start at 0.
      canvas.path(
          fmt::format("M{:.1f} {:.1f}l-4 {:.1f}m4 0l4 {:.1f}", left + 9, y + 1, chart.pitch - 2, -(chart.pitch - 2)),
          {.stroke = "#fff", .stroke_width = 1.6});
    }
    canvas.text(end + 5, middle, bar.text, {.size = font, .halo = true});
  }
  canvas.path(fmt::format("M{:.1f} {:.1f}V{:.1f}", left, top, bottom), {.stroke = "#1c2530"});
  const std::string axis = broken ? fmt::format("{} (axis starts at {}, not at 0)", chart.axis_label,
                                                labels.empty() ? "" : fmt::format("{:g}", chart.lo))
                                  : chart.axis_label;
  canvas.text(kChartWidth - 4, bottom + 29, axis,
              {.size = 10.5, .anchor = Anchor::end, .fill = broken ? "#a83c00" : "#55606c", .strong = broken});
  return canvas.str();
}

namespace {

constexpr size_t kMostBars = 64;
constexpr double kWidth = 200, kHeight = 96, kTop = 4, kBottom = 78;

/// Returns the sums of neighbouring bins, at most kMostBars of them.
std::vector<double> merge_bins(const std::vector<double>& counts) {
  const size_t merged = (counts.size() + kMostBars - 1) / kMostBars;
  std::vector<double> bars((counts.size() + merged - 1) / merged);
  for (size_t i = 0; i < counts.size(); ++i) bars[i / merged] += counts[i];
  return bars;
}

}  // namespace

std::string svg_histogram(const Histogram& h, const std::string& title, const std::string& colour) {
  Canvas canvas(kWidth, kHeight, title);
  const std::vector<double> bars = merge_bins(h.counts);
  const double largest = *std::max_element(bars.begin(), bars.end());
  // The last bar may be narrower than the others: it stands for fewer bins.
  const size_t merged = (h.counts.size() + kMostBars - 1) / kMostBars;
  const double bin = kWidth / static_cast<double>(h.counts.size());
  std::string d = fmt::format("M0 {:.1f}", kBottom);
  for (size_t i = 0; i < bars.size(); ++i) {
    const double height = largest > 0 ? (kBottom - kTop) * std::sqrt(std::max(0.0, bars[i]) / largest) : 0;
    const double end = bin * static_cast<double>(std::min((i + 1) * merged, h.counts.size()));
    d += fmt::format("V{:.1f}H{:.1f}", kBottom - height, end);
  }
  d += fmt::format("V{:.1f}Z", kBottom);
  const double total = std::accumulate(h.counts.begin(), h.counts.end(), 0.0);
  canvas.path(d, {.fill = colour},
              fmt::format("{}: {} values in [{}, {}]", title, human_count(total), decimal(h.lo), decimal(h.hi)));
  if (h.lo < 0 && h.hi > 0) {
    const double zero = kWidth * -h.lo / (static_cast<double>(h.hi) - h.lo);
    canvas.path(fmt::format("M{:.1f} {:.1f}V{:.1f}", zero, kTop, kBottom + 4),
                {.stroke = "#1c2530", .stroke_width = 0.8});
    if (zero > 50 && zero < kWidth - 50) canvas.text(zero, kHeight - 4, "0", {.size = 11, .anchor = Anchor::middle});
  }
  canvas.path(fmt::format("M0 {:.1f}H{:.1f}", kBottom, kWidth), {.stroke = "#1c2530", .stroke_width = 0.8});
  canvas.text(0, kHeight - 4, decimal(h.lo), {.size = 11});
  canvas.text(kWidth, kHeight - 4, decimal(h.hi), {.size = 11, .anchor = Anchor::end});
  return canvas.str();
}

}  // namespace octet
