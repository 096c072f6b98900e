#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/common/text_table.h"
#include "src/report/svg.h"

namespace octet {
namespace {

constexpr size_t kMostBars = 64;
constexpr double kWidth = 200, kHeight = 96, kTop = 4, kBottom = 78;

/// Neighbouring bins added up, so that at most kMostBars remain.
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
  // The last bar may stand for fewer bins than the others; its width says so.
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
