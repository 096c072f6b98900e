// octet bench --layers-of: every distinct convolution of a network on octet's CUDA kernels, on cuDNN and on CUTLASS.
#include "src/bench/convolutions.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "src/bench/layer_bars.h"
#include "src/common/files.h"
#include "src/engine/engine.h"
#include "tools/octet/bench_options.h"

namespace octet::cli {
namespace {

nlohmann::json to_json(const ConvBench& bench) {
  nlohmann::json convs = nlohmann::json::array();
  for (const ConvRow& row : bench.convs) {
    nlohmann::json times;
    for (const Contestant who : bench.contestants) {
      const ConvolutionTime& time = row.times[who];
      times[kContestantNames[who]] = {{"milliseconds", time.milliseconds},
                                      {"bytes", row.bytes[who]},
                                      {"kernel", time.kernel},
                                      {"reason", time.reason}};
    }
    convs.push_back({{"convolution", row.conv.description},
                     {"count", row.conv.count},
                     {"multiply_adds", row.multiply_adds},
                     {"times", times}});
  }
  nlohmann::json weighted;
  for (const Contestant who : bench.contestants) weighted[kContestantNames[who]] = bench.weighted[who];
  return {{"network", bench.network}, {"machine", bench.machine},   {"batch", bench.batch},
          {"convolutions", convs},    {"compared", bench.compared}, {"weighted_ms", weighted}};
}

/// The rows that can be compared. (A first layer that cuDNN int8 does not run can take more than all others.)
std::string to_svg(const ConvBench& bench) {
  std::vector<std::string> layers;
  std::vector<LayerSeries> series;
  for (const Contestant who : bench.contestants)
    series.push_back({kContestantNames[who], series_colour(series.size()), {}, {}});
  for (const ConvRow& row : bench.convs) {
    if (!all_ran(bench, row)) continue;
    layers.push_back(std::to_string(row.conv.count) + "x " + row.conv.description);
    for (size_t i = 0; i < series.size(); ++i) {
      const auto& time = row.times[bench.contestants[i]];
      series[i].milliseconds.push_back(time.milliseconds);
      series[i].notes.push_back(time.kernel);
    }
  }
  return svg_layer_bars(fmt::format("{} on {}, batch {}, {} of {} convolutions: those that all ran", bench.network,
                                    bench.machine, bench.batch, layers.size(), bench.convs.size()),
                        layers, series);
}

void require_gpu_engines(const Common& common) {
  if (common.device == "cpu") throw usage_error("bench: --layers-of measures on a GPU, --device cpu excludes it");
  for (const char* name : {"cuda", "cudnn"}) {
    if (const Support machine = find_engine(name).available(); !machine.ok)
      throw usage_error(fmt::format("bench: --layers-of measures engines cuda and cudnn, and {} cannot run here: {}",
                                    name, machine.reason));
  }
}

}  // namespace

ExitCode bench_layers(const Common& common, const BenchCommand& command) {
  const Int8Graph graph = random_network(command.layers_of, command.sizes.front(), "symmetric_s8", command.sparsity);
  require_gpu_engines(common);
  nlohmann::json results = nlohmann::json::array();
  for (const int batch : command.batches) {
    const ConvBench bench = bench_convolutions(graph, {.batch = batch});
    if (!common.json)  // each takes minutes: at once
      print_result(common, (results.empty() ? "" : "\n") + describe(bench), nullptr);
    results.push_back(to_json(bench));
    if (!command.svg.empty() && batch == command.batches.front()) write_file_atomically(command.svg, to_svg(bench));
  }
  if (common.json) print_result(common, "", [&] { return results.dump(2); });
  return ExitCode::ok;
}

}  // namespace octet::cli
