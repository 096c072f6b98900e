#include "src/bench/sweep.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/bench/layer_bars.h"
#include "src/report/svg.h"

namespace octet {

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
