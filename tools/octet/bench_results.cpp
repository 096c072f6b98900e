#include "tools/octet/bench_results.h"

#include <fmt/format.h>

#include "src/common/files.h"

namespace octet::cli {
namespace {

nlohmann::json to_json(const std::string& engine, int size, const BenchResult& result) {
  nlohmann::json layers = nlohmann::json::array();
  for (const LayerTime& layer : result.layers) {
    layers.push_back({{"name", layer.name},
                      {"engine", layer.engine.empty() ? engine : layer.engine},
                      {"kernel", layer.kernel},
                      {"milliseconds", layer.milliseconds},
                      {"multiply_adds", layer.multiply_adds},
                      {"bytes", layer.bytes},
                      {"floor_ms", layer.floor_ms}});
  }
  return {{"engine", engine},
          {"size", size},
          {"batch", result.batch},
          {"runs", result.runs},
          {"compile_seconds", result.compile_seconds},
          {"median_ms", result.median_ms},
          {"p99_ms", result.p99_ms},
          {"images_per_second", result.images_per_second},
          {"device_ms", result.device_ms},
          {"device_p99_ms", result.device_p99_ms},
          {"overlapped_images_per_second", result.overlapped_images_per_second},
          {"gpu_joules_per_image", result.gpu_joules},
          {"gpu_watts", result.gpu_watts},
          {"cpu_joules_per_image", result.cpu_joules},
          {"multiply_adds", result.multiply_adds},
          {"layers", layers}};
}

LayerSeries series_of(const std::string& engine, size_t index, const BenchResult& result) {
  LayerSeries series{engine, series_colour(index), {}, {}};
  for (const LayerTime& layer : result.layers) {
    series.milliseconds.push_back(layer.milliseconds);
    series.notes.push_back(layer.kernel);
  }
  return series;
}

}  // namespace

void BenchResults::say(const std::string& text) const {
  if (!common_.json) print_result(common_, text, nullptr);
}

void BenchResults::add(const std::string& engine, const std::string& at, int size, const BenchResult& result) {
  say(fmt::format("{}{}: {}", engine, at, describe(result)));
  json_.push_back(to_json(engine, size, result));
  points_.push_back({engine, command_.sizes.size() > 1 ? size : 0, command_.batches.size() > 1 ? result.batch : 0,
                     result.images_per_second});
  if (!result.layers.empty() && size == first_.input_shape().h && result.batch == command_.batches.front())
    series_.push_back(series_of(engine, series_.size(), result));
}

void BenchResults::add_refusal(const std::string& engine, const std::string& at, int size, std::optional<int> batch,
                               const Error& why) {
  say(fmt::format("{}{}: not measured: {}", engine, at, why.what()));
  json_.push_back({{"engine", engine}, {"size", size}, {"not_measured", why.what()}});
  if (batch) json_.back()["batch"] = *batch;
  if (!failed) failed = why;
}

void BenchResults::finish(bool interrupted) const {
  if (common_.json) {
    print_result(common_, "", [&] {
      return nlohmann::json{{"network", first_.name},
                            {"machine", machine},
                            {"threads", command_.threads},
                            {"interrupted", interrupted},
                            {"results", json_}}
          .dump(2);
    });
  }
  if (!command_.svg.empty() && !points_.empty()) write_file_atomically(command_.svg, svg());
}

bool BenchResults::draws_layers() const {
  return !command_.svg.empty() && (command_.layers || command_.batches.size() * command_.sizes.size() == 1);
}

std::string BenchResults::svg() const {
  const std::string title = first_.name + " on " + machine;
  if (!draws_layers()) return svg_sweep(title, points_);
  std::vector<std::string> layers;
  for (const Int8Node& node : first_.nodes) layers.push_back(node.name);
  return svg_layer_bars(fmt::format("{}, batch {}", title, command_.batches.front()), layers, series_);
}

}  // namespace octet::cli
