// SPDX-License-Identifier: Apache-2.0
// The text of `octet bench` on a network.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "src/base/text.h"
#include "src/bench/bench.h"
#include "src/report/html.h"
#include "src/report/svg.h"

namespace octet {
namespace {

/// Returns whether more than one engine ran the program's nodes.
bool several_engines(const std::vector<LayerTime>& layers) {
  std::set<std::string> engines;
  for (const LayerTime& layer : layers) {
    if (!layer.engine.empty()) engines.insert(layer.engine);
  }
  return engines.size() > 1;
}

}  // namespace

std::string describe(const BenchResult& r) {
  const bool device = r.device_ms > 0;
  const auto rate = [](long count, double ms) {
    return count > 0 && ms > 0 ? decimal(static_cast<double>(count) / (1e6 * ms)) : std::string("-");
  };
  const auto tera_operations = [&](long multiply_adds, double ms) { return rate(2 * multiply_adds, 1e3 * ms); };
  std::string text =
      fmt::format("batch {}: median {}, p99 {}, {} images/s, {} G multiply-adds/s ({})\n", r.batch,
                  human_seconds(r.median_ms / 1e3), human_seconds(r.p99_ms / 1e3), decimal(r.images_per_second),
                  rate(r.multiply_adds, r.median_ms), counted(r.runs, "run"));
  if (device) {
    text += fmt::format("on the GPU alone: median {}, p99 {}, {} images/s, {} TOPS\n", human_seconds(r.device_ms / 1e3),
                        human_seconds(r.device_p99_ms / 1e3), decimal(1e3 * r.batch / r.device_ms),
                        tera_operations(r.multiply_adds, r.device_ms));
    text += fmt::format("batches overlapping: {} images/s\n", decimal(r.overlapped_images_per_second));
  }
  if (r.compile_seconds > 0) text += fmt::format("compiled in {}\n", human_seconds(r.compile_seconds));
  if (r.gpu_joules > 0)
    text +=
        fmt::format("energy: {} mJ an image of the GPU, at {} W\n", decimal(1e3 * r.gpu_joules), decimal(r.gpu_watts));
  if (r.cpu_joules > 0) text += fmt::format("energy: {} mJ an image of the processors\n", decimal(1e3 * r.cpu_joules));
  if (r.layers.empty()) return text;
  double sum = 0;
  for (const LayerTime& layer : r.layers) sum += layer.milliseconds;
  const bool engines = several_engines(r.layers);
  const bool floors = std::any_of(r.layers.begin(), r.layers.end(), [](const LayerTime& l) { return l.floor_ms > 0; });
  std::vector<Column> columns = {{"layer", Align::left}};
  if (engines) columns.push_back({"engine", Align::left});
  columns.insert(columns.end(), {{"kernel", Align::left}, {"time"}, {"share"}});
  if (device) {
    columns.insert(columns.end(), {{"TOPS"}, {"GB/s"}});
    if (floors) columns.insert(columns.end(), {{"floor"}, {"x floor"}});
  } else {
    columns.push_back({"G multiply-adds/s"});
  }
  TextTable table(columns);
  for (const LayerTime& layer : r.layers) {
    std::vector<std::string> row = {layer.name};
    if (engines) row.push_back(layer.engine);
    row.insert(row.end(), {layer.kernel, human_seconds(layer.milliseconds / 1e3),
                           percent(sum > 0 ? layer.milliseconds / sum : 0, 1)});
    if (device) {
      row.push_back(tera_operations(layer.multiply_adds, layer.milliseconds));
      row.push_back(rate(layer.bytes, layer.milliseconds));
      if (floors) {
        row.push_back(layer.floor_ms > 0 ? human_seconds(layer.floor_ms / 1e3) : "-");
        row.push_back(layer.floor_ms > 0 ? fmt::format("{:.2f}", layer.milliseconds / layer.floor_ms) : "-");
      }
    } else {
      row.push_back(rate(layer.multiply_adds, layer.milliseconds));
    }
    table.add_row(std::move(row));
  }
  if (device) text += describe(r.rates) + "\n";
  return text + fmt::format("\n{}\nlayers: {} in all, {}\n", table.render(), human_seconds(sum / 1e3),
                            device ? "each replayed alone, so that its inputs may lie in the cache"
                                   : "timed one by one with their outputs copied out");
}

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
