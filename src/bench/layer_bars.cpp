#include "src/bench/layer_bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "src/common/text_table.h"
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

}  // namespace octet
