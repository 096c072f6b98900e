// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "src/report/html.h"
#include "src/report/report.h"
#include "src/report/svg.h"

namespace octet {
namespace {

constexpr double kWidth = 820, kMargin = 20, kGap = 12, kCardTop = 60, kCardHeight = 88, kChartTop = 176;
constexpr double kHalf = (kWidth - 2 * kMargin - kGap) / 2;
constexpr double kHistogram = (kHalf - kGap) / 2;  ///< width; the height is half of it
constexpr size_t kMostLayers = 2;                  ///< how many layers' histograms are drawn

// The rules for text that charts take from the page around them.
constexpr const char* kSvgStyle =
    "<style>text{font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif;fill:#1c2530}"
    "text.halo{paint-order:stroke;stroke:#fff;stroke-width:3px}</style>\n";

/// Returns a chart as part of the image: as large as fits into the box, from its upper left corner.
std::string placed(const std::string& chart, const Canvas::Box& box) {
  constexpr size_t kOpening = 4;  // "<svg"
  return fmt::format("<svg x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" preserveAspectRatio=\"xMinYMin\"", box.x, box.y,
                     box.width, box.height) +
         chart.substr(kOpening);
}

/// Splits text into two lines: at a semicolon, or where the first line is full.
std::pair<std::string, std::string> two_lines(const std::string& text, double width, double size) {
  if (const size_t part = text.find("; "); part != std::string::npos)
    return {text.substr(0, part), text.substr(part + 2)};
  const std::vector<std::string> lines = wrap_text(text, width, size);
  if (lines.size() < 2 || text_width(lines[0], size) > width) return {text, ""};
  return {lines[0], text.substr(lines[0].size() + 1)};
}

void draw_card(Canvas& canvas, const Card& card, const Canvas::Box& box) {
  constexpr const char* kColours[] = {colour::kBlue, colour::kGreen, colour::kVermillion, colour::kGrey};
  canvas.rect(box, {.fill = "#fff", .stroke = "#d9dee4"});
  canvas.rect({box.x, box.y, box.width, 4}, {.fill = kColours[static_cast<size_t>(card.kind)]});
  const auto line = [&](double y, const std::string& text, const Canvas::TextStyle& style) {
    canvas.text(box.x + 10, box.y + y, fit_text(text, box.width - 14, style.size), style);
  };
  line(22, card.name, {.size = 11, .fill = "#55606c"});
  line(47, card.value, {.size = 20, .strong = true});
  const auto [first, second] = two_lines(card.what, box.width - 14, 10.5);
  line(65, first, {.size = 10.5});
  line(80, second, {.size = 10.5});
}

/// Returns histograms of weights and outputs, for the first layers that have both.
std::string histograms(const Report& report, Canvas& canvas) {
  std::string charts;
  size_t drawn = 0;
  for (const ReportLayer& layer : report.layers) {
    const LayerStatistics& l = layer.statistics;
    if (l.weights.counts.empty() || l.activations.counts.empty()) continue;
    const double x = kMargin + kHalf + kGap, y = kChartTop + static_cast<double>(drawn) * (kHistogram / 2 + 26);
    const auto draw = [&](double left, const Histogram& values, const std::string& what, const char* hue) {
      const std::string title = l.name + ", " + what;
      canvas.text(left, y + 8, fit_text(title, kHistogram, 11), {.size = 11, .fill = "#55606c"});
      charts += placed(svg_histogram(values, title, hue), {left, y + 12, kHistogram, kHistogram / 2});
    };
    draw(x, l.weights, "weights", colour::kGrey);
    draw(x + kHistogram + kGap, l.activations, "outputs", colour::kBlue);
    if (++drawn == kMostLayers) break;
  }
  return charts;
}

}  // namespace

std::string report_svg(const Report& report) {
  const std::vector<Card> cards = result_cards(report);
  const BarChart bars = accuracy_chart(report);
  const double bars_height = (bars.pitch * static_cast<double>(bars.bars.size()) + 40) * kHalf / kChartWidth;
  const double height = kChartTop + std::max(bars_height, kMostLayers * (kHistogram / 2 + 26)) + kMargin;

  Canvas canvas(kWidth, height, report.title);
  canvas.rect({0, 0, kWidth, height}, {.fill = "#fff"});
  canvas.text(kMargin, 28, fit_text(report.title, kWidth - 2 * kMargin, 18), {.size = 18, .strong = true});
  canvas.text(kMargin, 47, report.model + ", trained for int8 and checked by octet", {.size = 12, .fill = "#55606c"});
  const double width = (kWidth - 2 * kMargin + kGap) / static_cast<double>(cards.size()) - kGap;
  for (size_t i = 0; i < cards.size(); ++i)
    draw_card(canvas, cards[i], {kMargin + static_cast<double>(i) * (width + kGap), kCardTop, width, kCardHeight});
  const std::string charts =
      histograms(report, canvas) + placed(svg_bars(bars), {kMargin, kChartTop, kHalf, bars_height});

  std::string svg = canvas.str();
  svg.insert(svg.find('>') + 2, kSvgStyle);
  svg.insert(svg.rfind("</svg>"), charts);
  svg.insert(4, " xmlns=\"http://www.w3.org/2000/svg\"");
  return svg;
}

}  // namespace octet
