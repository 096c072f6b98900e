// SPDX-License-Identifier: Apache-2.0
#include "src/bench/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "src/base/text.h"
#include "src/report/html.h"
#include "src/report/svg.h"

namespace octet {

std::string svg_layer_bars(const std::string& title, const std::vector<std::string>& layers,
                           const std::vector<LayerSeries>& series) {
  BarChart chart;
  chart.title = chart.heading = title;
  chart.axis_label = "milliseconds";
  chart.pitch = 13;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    bool first = true;
    for (const LayerSeries& s : series) {
      const double ms = s.milliseconds.at(layer);
      if (!(ms > 0)) continue;
      chart.bars.push_back({first ? layers[layer] : "", fmt::format("{} {}", decimal(ms), s.name), ms,
                            fmt::format("{}, {}: {} ms, {}", layers[layer], s.name, decimal(ms), s.notes.at(layer)),
                            s.colour});
      chart.hi = std::max(chart.bars.size() == 1 ? 0.0 : chart.hi, ms);
      first = false;
    }
  }
  return svg_file(svg_bars(chart));
}

std::string series_colour(size_t index) {
  constexpr const char* kColours[] = {colour::kBlue,       colour::kOrange, colour::kGreen,
                                      colour::kVermillion, colour::kSky,    colour::kGrey};
  return kColours[index % std::size(kColours)];
}

std::string svg_sweep(const std::string& title, const std::vector<SweepPoint>& points) {
  const bool over_batch = points.at(0).batch > 0, sizes = points.at(0).size > 0;
  LineChart chart{.title = title,
                  .x_label = over_batch ? "batch" : "height and width",
                  .y_label = "images/s",
                  .heading = title + "; host to host, one batch after the other"};
  for (const SweepPoint& point : points) {
    const std::string name = over_batch && sizes ? fmt::format("{}, {}", point.engine, point.size) : point.engine;
    auto line = std::find_if(chart.lines.begin(), chart.lines.end(), [&](const Line& l) { return l.name == name; });
    if (line == chart.lines.end())
      line = chart.lines.insert(line, {.name = name, .colour = series_colour(chart.lines.size())});
    line->x.push_back(over_batch ? point.batch : point.size);
    line->y.push_back(point.images_per_second);
  }
  return svg_file(svg_lines(chart));
}

}  // namespace octet
