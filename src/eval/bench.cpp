#include "src/eval/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "src/common/error.h"
#include "src/common/interrupt.h"
#include "src/eval/metrics.h"
#include "src/eval/text_table.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFewestRuns = 3;
constexpr double kWarmUpShare = 0.1;  ///< of the measuring time; at least one run

double milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

std::vector<uint8_t> random_images(size_t bytes) {
  std::mt19937 generator(1);
  std::vector<uint8_t> images(bytes);
  for (uint8_t& pixel : images) pixel = static_cast<uint8_t>(generator() >> 24);
  return images;
}

/// Calls `run` for about `seconds`, at least `fewest` times.
template <typename Run>
void repeat(double seconds, int fewest, const Run& run) {
  const auto start = Clock::now();
  for (int runs = 0; runs < fewest || milliseconds(Clock::now() - start) < 1e3 * seconds; ++runs) {
    throw_if_interrupted();
    run();
  }
}

long node_multiply_adds(const Int8Node& node) {
  if (node.weight.empty()) return 0;
  const long per_output = static_cast<long>(node.weight.size()) / node.shape.c;  // R * S * C / groups
  return node.shape.elements() * per_output;
}

/// Names from the graph, kernels from the program, times from the taps of many runs.
std::vector<LayerTime> time_layers(const Int8Graph& graph, const BenchOptions& options,
                                   const std::vector<LayerInfo>& kernels,
                                   const std::function<void(const NodeTap&)>& run) {
  std::vector<std::vector<double>> samples(graph.nodes.size());
  repeat(options.seconds, kFewestRuns, [&] {
    auto last = Clock::now();
    run([&](int node, const void*, size_t) {
      samples.at(node).push_back(milliseconds(Clock::now() - last));
      last = Clock::now();
    });
  });
  std::vector<LayerTime> layers;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Int8Node& node = graph.nodes[i];
    const auto info =
        std::find_if(kernels.begin(), kernels.end(), [&](const LayerInfo& k) { return k.name == node.name; });
    layers.push_back({node.name, info == kernels.end() ? "" : info->kernel, median(std::move(samples[i])),
                      options.batch * node_multiply_adds(node)});
  }
  return layers;
}

}  // namespace

BenchResult bench_program(Program& program, const Int8Graph& graph, const BenchOptions& options) {
  if (options.batch < 1 || !(options.seconds >= 0)) {
    throw usage_error(
        fmt::format("bench: batch {} and {} seconds; needs a batch of at least 1 and a time of at least 0",
                    options.batch, options.seconds));
  }
  const auto images = random_images(static_cast<size_t>(options.batch) * graph.input_shape().elements());
  std::vector<float> logits(static_cast<size_t>(options.batch) * graph.classes());
  const auto run = [&](const NodeTap& tap) { program.run(images.data(), options.batch, logits.data(), tap); };

  repeat(kWarmUpShare * options.seconds, 1, [&] { run(nullptr); });
  std::vector<double> samples;
  repeat(options.seconds, kFewestRuns, [&] {
    const auto start = Clock::now();
    run(nullptr);
    samples.push_back(milliseconds(Clock::now() - start));
  });

  BenchResult result;
  result.batch = options.batch;
  result.runs = static_cast<long>(samples.size());
  result.median_ms = median(samples);
  result.p99_ms = percentile(std::move(samples), 0.99);
  if (result.median_ms > 0) result.images_per_second = 1e3 * options.batch / result.median_ms;
  for (const Int8Node& node : graph.nodes) result.multiply_adds += options.batch * node_multiply_adds(node);
  if (options.layers) result.layers = time_layers(graph, options, program.layers(), run);
  return result;
}

std::string describe(const BenchResult& r) {
  const auto rate = [](long multiply_adds, double ms) {
    return multiply_adds > 0 && ms > 0 ? decimal(static_cast<double>(multiply_adds) / (1e6 * ms)) : std::string("-");
  };
  std::string text =
      fmt::format("batch {}: median {}, p99 {}, {} images/s, {} G multiply-adds/s ({})\n", r.batch,
                  human_seconds(r.median_ms / 1e3), human_seconds(r.p99_ms / 1e3), decimal(r.images_per_second),
                  rate(r.multiply_adds, r.median_ms), counted(r.runs, "run"));
  if (r.layers.empty()) return text;
  double sum = 0;
  for (const LayerTime& layer : r.layers) sum += layer.milliseconds;
  TextTable table({{"layer", Align::left}, {"kernel", Align::left}, {"time"}, {"share"}, {"G multiply-adds/s"}});
  for (const LayerTime& layer : r.layers) {
    table.add_row({layer.name, layer.kernel, human_seconds(layer.milliseconds / 1e3),
                   percent(sum > 0 ? layer.milliseconds / sum : 0, 1), rate(layer.multiply_adds, layer.milliseconds)});
  }
  return text + fmt::format("\n{}\nlayers: {} in all, timed one by one with their outputs copied out\n", table.render(),
                            human_seconds(sum / 1e3));
}

}  // namespace octet
