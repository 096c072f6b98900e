// SPDX-License-Identifier: Apache-2.0
#include "src/bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <list>

#include "src/base/error.h"
#include "src/base/numbers.h"
#include "src/base/progress.h"
#include "src/base/random.h"
#include "src/engine/fusion.h"
#if OCTET_CUDA
#include "src/cuda/memory.h"
#endif

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFewestRuns = 3;
constexpr double kWarmUpShare = 0.1;  ///< of the measuring time; at least one run
constexpr int kMostDeviceRuns = 2000;
constexpr int kLayerRuns = 25;

double milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

/// Memory that a program reads or writes: page-locked if there is a GPU, which copies such memory fastest.
class HostMemory {
 public:
  explicit HostMemory(size_t bytes) {
#if OCTET_CUDA
    if (gpu_status().usable) {
      pinned_ = PinnedBuffer(bytes);
      return;
    }
#endif
    pageable_.resize(bytes);
  }
  uint8_t* data() {
#if OCTET_CUDA
    if (pinned_.data()) return pinned_.data();
#endif
    return pageable_.data();
  }

 private:
#if OCTET_CUDA
  PinnedBuffer pinned_;
#endif
  std::vector<uint8_t> pageable_;
};

void fill_with_noise(uint8_t* pixels, size_t bytes) {
  Random random({1});
  for (size_t i = 0; i < bytes; ++i) pixels[i] = static_cast<uint8_t>(random.next() >> 56);
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

/// Energy counters are too coarse for a shorter time.
constexpr double kLeastSecondsOfEnergy = 1;

void set_energy(const Energy& energy, double images, BenchResult& result) {
  if (energy.seconds < kLeastSecondsOfEnergy) return;
  result.gpu_joules = energy.gpu_joules.value_or(0) / images;
  result.gpu_watts = energy.gpu_joules.value_or(0) / energy.seconds;
  result.cpu_joules = energy.cpu_joules.value_or(0) / images;
}

/// Measures the rate and the energy while each batch is submitted before the previous one is collected.
void run_overlapped(Program& program, const uint8_t* images, const BenchOptions& options, const OutputMemory& outputs,
                    BenchResult& result) {
  const EnergyMeter meter;
  const auto start = Clock::now();
  long batches = 1;
  program.submit(images, options.batch);
  repeat(options.seconds, kFewestRuns, [&] {
    program.submit(images, options.batch);
    program.collect(outputs);
    ++batches;
  });
  program.collect(outputs);
  const auto count = static_cast<double>(batches * options.batch);
  result.overlapped_images_per_second = 1e3 * count / milliseconds(Clock::now() - start);
  set_energy(meter.drawn(), count, result);
}

/// Returns the median time before each node's tap, over many runs.
std::vector<double> time_between_taps(const Int8Graph& graph, const BenchOptions& options,
                                      const std::function<void(const NodeTap&)>& run) {
  std::vector<std::vector<double>> samples(graph.nodes.size());
  repeat(options.seconds, kFewestRuns, [&] {
    auto last = Clock::now();
    run([&](int node, const void*, size_t) {
      samples.at(node).push_back(milliseconds(Clock::now() - last));
      last = Clock::now();
    });
  });
  std::vector<double> medians;
  for (std::vector<double>& times : samples) medians.push_back(median(std::move(times)));
  return medians;
}

/// Returns whether a node's value must be written although its group runs as one kernel: it is an output of the
/// network, or a node of another group reads it.
bool leaves_its_group(const Int8Graph& graph, const std::vector<int>& first, int node) {
  if (std::find(graph.outputs.begin(), graph.outputs.end(), node) != graph.outputs.end()) return true;
  for (size_t reader = 0; reader < graph.nodes.size(); ++reader) {
    const std::vector<int>& inputs = graph.nodes[reader].inputs;
    if (first[reader] != first[node] && std::find(inputs.begin(), inputs.end(), node) != inputs.end()) return true;
  }
  return false;
}

/// Joins nodes that ran as one kernel into the first of them, which has the kernel's name. The values between them are
/// not read, and not written unless they leave the group. The time is that of the last node.
void join_merged(const Int8Graph& graph, int batch, std::vector<LayerTime>& layers) {
  std::vector<std::string> kernels;
  for (const LayerTime& layer : layers) kernels.push_back(layer.kernel);
  const std::vector<int> first = computed_by(graph, kernels);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].kernel != "merged") continue;
    const std::vector<int>& inputs = graph.nodes[i].inputs;
    LayerTime &to = layers[first[i]], &from = layers[i];
    to.milliseconds = from.milliseconds;
    to.multiply_adds += from.multiply_adds;
    const int times = leaves_its_group(graph, first, inputs[0]) ? 1 : 2;
    to.bytes += from.bytes - times * batch * static_cast<long>(graph.nodes[inputs[0]].image_bytes());
    for (size_t other = 1; other < inputs.size(); ++other) {  // a residual that the first node also reads
      const std::vector<int>& read = graph.nodes[first[i]].inputs;
      if (std::find(read.begin(), read.end(), inputs[other]) != read.end())
        to.bytes -= batch * static_cast<long>(graph.nodes[inputs[other]].image_bytes());
    }
    from.milliseconds = 0, from.multiply_adds = 0, from.bytes = 0;
  }
}

/// Returns the layers, with their names and sizes from the graph and their kernels from the program.
std::vector<LayerTime> layer_table(const Int8Graph& graph, int batch, const std::vector<LayerInfo>& kernels,
                                   const std::vector<double>& milliseconds) {
  std::vector<LayerTime> layers;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Int8Node& node = graph.nodes[i];
    const auto info =
        std::find_if(kernels.begin(), kernels.end(), [&](const LayerInfo& k) { return k.name == node.name; });
    const LayerInfo ran = info == kernels.end() ? LayerInfo{} : *info;
    layers.push_back({node.name, ran.kernel, ran.engine, milliseconds.at(i), batch * node_multiply_adds(node),
                      node_bytes(graph, static_cast<int>(i), batch)});
  }
  join_merged(graph, batch, layers);
  return layers;
}

/// Sets the minimum time of every layer that ran.
void set_floors(const Int8Graph& graph, int batch, const ChipRates& rates, std::vector<LayerTime>& layers) {
  for (size_t i = 0; i < layers.size(); ++i)
    if (layers[i].milliseconds > 0 && !graph.nodes[i].inputs.empty())
      layers[i].floor_ms = floor_milliseconds(layers[i].bytes - batch * pixels_not_read(graph, static_cast<int>(i)),
                                              2 * layers[i].multiply_adds, rates);
}

/// Returns how many runs take about `seconds`, given the milliseconds of the first ones.
int device_runs(double seconds, const std::vector<double>& samples) {
  const double one = std::max(median(samples), 1e-3);
  return static_cast<int>(std::clamp(1e3 * seconds / one, static_cast<double>(kFewestRuns), double{kMostDeviceRuns}));
}

}  // namespace

BenchResult bench_program(Program& program, const Int8Graph& graph, const BenchOptions& options) {
  if (options.batch < 1 || !(options.seconds >= 0)) {
    throw usage_error(
        fmt::format("bench: batch {} and {} seconds; needs a batch of at least 1 and a time of at least 0",
                    options.batch, options.seconds));
  }
  const size_t pixels = static_cast<size_t>(options.batch) * graph.input_shape().elements();
  HostMemory images(pixels);
  std::list<HostMemory> memory;
  std::vector<void*> outputs;
  for (const int output : graph.outputs) {
    outputs.push_back(memory.emplace_back(options.batch * graph.nodes[output].image_bytes()).data());
  }
  fill_with_noise(images.data(), pixels);
  const auto run = [&](const NodeTap& tap) { program.run(images.data(), options.batch, OutputMemory(outputs), tap); };

  repeat(kWarmUpShare * options.seconds, 1, [&] { run(nullptr); });
  std::vector<double> samples;
  const EnergyMeter meter;
  repeat(options.seconds, kFewestRuns, [&] {
    const auto start = Clock::now();
    run(nullptr);
    samples.push_back(milliseconds(Clock::now() - start));
  });
  Energy on_host = meter.drawn();
  on_host.gpu_joules.reset();

  BenchResult result;
  result.batch = options.batch;
  result.runs = static_cast<long>(samples.size());
  result.median_ms = median(samples);
  result.p99_ms = percentile(std::move(samples), 0.99);
  if (result.median_ms > 0) result.images_per_second = 1e3 * options.batch / result.median_ms;
  for (const Int8Node& node : graph.nodes) result.multiply_adds += options.batch * node_multiply_adds(node);

  const std::vector<double> first = program.time_on_device(options.batch, kFewestRuns);
  const int runs = first.empty() ? 0 : device_runs(options.seconds, first);
  if (runs == 0) set_energy(on_host, static_cast<double>(result.runs * options.batch), result);
  if (runs > 0) {
    std::vector<double> on_device = program.time_on_device(options.batch, runs);
    result.device_ms = median(on_device);
    result.device_p99_ms = percentile(std::move(on_device), 0.99);
    run_overlapped(program, images.data(), options, OutputMemory(outputs), result);
  }
  if (options.layers) {
    const std::vector<double> layers =
        runs > 0 ? program.time_layers_on_device(options.batch, kLayerRuns) : time_between_taps(graph, options, run);
    result.layers = layer_table(graph, options.batch, program.layers(), layers);
    result.rates = options.rates;
    if (runs > 0 && result.rates) set_floors(graph, options.batch, *result.rates, result.layers);
  }
  return result;
}

}  // namespace octet
