// SPDX-License-Identifier: Apache-2.0
#include "src/report/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "src/base/text.h"
#include "src/report/html.h"

namespace octet {
namespace {

/// Returns a coordinate, rounded to a tenth of a unit: less than a pixel, and a report of 50 layers stays small.
std::string number(double x) {
  std::string text = fmt::format("{:.1f}", x);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string paint(const Canvas::Style& style) {
  std::string text = fmt::format(" fill=\"{}\"", html_escape(style.fill.empty() ? "none" : style.fill));
  if (style.stroke != "none") {
    text += fmt::format(" stroke=\"{}\" stroke-width=\"{}\"", html_escape(style.stroke), number(style.stroke_width));
  }
  if (!style.dash.empty()) text += fmt::format(" stroke-dasharray=\"{}\"", html_escape(style.dash));
  return text;
}

std::string close(std::string_view element, std::string_view tooltip) {
  if (tooltip.empty()) return "/>\n";
  return fmt::format("><title>{}</title></{}>\n", html_escape(tooltip), element);
}

}  // namespace

std::string svg_file(std::string chart) {
  chart.insert(
      std::string_view("<svg").size(),
      " xmlns=\"http://www.w3.org/2000/svg\" font-family=\"system-ui, sans-serif\" style=\"background: #fff\"");
  return chart;
}

void Canvas::rect(const Box& box, const Style& style, std::string_view tooltip) {
  body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{}", number(box.x), number(box.y),
                       number(std::max(0.0, box.width)), number(std::max(0.0, box.height)), paint(style)) +
           close("rect", tooltip);
}

void Canvas::path(std::string_view d, const Style& style, std::string_view tooltip) {
  body_ += fmt::format("<path d=\"{}\"{}", d, paint(style)) + close("path", tooltip);
}

void Canvas::text(double x, double y, std::string_view text, const TextStyle& style, std::string_view tooltip) {
  body_ += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\"", number(x), number(y), number(style.size));
  if (style.anchor != Anchor::start) {
    body_ += fmt::format(" text-anchor=\"{}\"", style.anchor == Anchor::end ? "end" : "middle");
  }
  // A style, not an attribute: the page's rule for text would win over an attribute.
  if (!style.fill.empty()) body_ += fmt::format(" style=\"fill:{}\"", html_escape(style.fill));
  if (style.halo) body_ += " class=\"halo\"";
  if (style.strong) body_ += " font-weight=\"600\"";
  if (style.rotate != 0) {
    body_ += fmt::format(" transform=\"rotate({} {} {})\"", number(style.rotate), number(x), number(y));
  }
  body_ += '>';
  body_ += html_escape(text);
  if (!tooltip.empty()) body_ += fmt::format("<title>{}</title>", html_escape(tooltip));
  body_ += "</text>\n";
}

void Canvas::dot(double x, double y, const std::string& fill, std::string_view tooltip) {
  body_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"2.6\" fill=\"{}\"", number(x), number(y), html_escape(fill)) +
           close("circle", tooltip);
}

std::string Canvas::str() const {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n", number(width_),
                     number(height_), html_escape(title_), body_);
}

std::vector<double> nice_ticks(double lo, double hi, int count) {
  // The loop would never end with steps that are subnormal, too small to change the sum, or overflow.
  const double least = std::max(1e-300, 1e-9 * std::max(std::abs(lo), std::abs(hi)));
  if (!(hi - lo > least && hi - lo < 1e300) || count < 1) return {lo};
  const double raw = (hi - lo) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  // The borders between steps 1, 2, 5 and 10 are their geometric means.
  const double mantissa = raw / power;
  const double step = power * (mantissa < 1.41 ? 1 : mantissa < 3.16 ? 2 : mantissa < 7.07 ? 5 : 10);
  std::vector<double> ticks;
  for (double k = std::ceil(lo / step - 1e-9); k * step <= hi + step * 1e-9; ++k)
    ticks.push_back(k * step + 0.0);  // no -0
  return ticks;
}

std::vector<std::string> tick_labels(const std::vector<double>& ticks) {
  double step = 1;
  if (ticks.size() > 1) step = ticks[1] - ticks[0];
  const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 8);
  std::vector<std::string> labels;
  constexpr double kLargest = 1e7;  // larger ones have no room in digits
  const bool large = std::any_of(ticks.begin(), ticks.end(), [](double tick) { return std::abs(tick) > kLargest; });
  for (const double tick : ticks) {
    // Adding 0 turns -0 into 0.
    labels.push_back(large ? fmt::format("{:.3g}", tick + 0.0) : fmt::format("{:.{}f}", tick + 0.0, decimals));
  }
  return labels;
}

std::string shade(const Rgb& hue, double strength) {
  const auto mix = [&](double c) { return static_cast<int>(std::lround(255 + (c - 255) * strength)); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(hue.r), mix(hue.g), mix(hue.b));
}

double text_width(std::string_view text, double size) {
  constexpr double kMeanCharacter = 0.58;  // width over font size, a little above the mean of common sans-serif fonts
  return kMeanCharacter * size * static_cast<double>(display_width(text));
}

std::string fit_text(std::string_view text, double width, double size) {
  if (text_width(text, size) <= width) return std::string(text);
  std::string fitted(text);
  const std::string ellipsis = "\xE2\x80\xA6";
  while (!fitted.empty() && text_width(fitted + ellipsis, size) > width) {
    while (!fitted.empty() && (static_cast<unsigned char>(fitted.back()) & 0xC0) == 0x80) fitted.pop_back();
    if (!fitted.empty()) fitted.pop_back();
  }
  return fitted + ellipsis;
}

std::vector<std::string> wrap_text(const std::string& text, double width, double size) {
  std::vector<std::string> lines;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!lines.empty() && text_width(lines.back() + " " + word, size) <= width) {
      lines.back() += " " + word;
    } else {
      lines.push_back(word);
    }
  }
  return lines;
}

double draw_heading(const std::string& heading, Canvas* canvas) {
  constexpr double kMargin = 8, kLine = 15, kSize = 10.5;
  double height = 0;
  for (const std::string& line : wrap_text(heading, kChartWidth - 2 * kMargin, kSize)) {
    if (canvas) canvas->text(kMargin, height + 12, line, {.size = kSize});
    height += kLine;
  }
  return height;
}

}  // namespace octet
