// SPDX-License-Identifier: Apache-2.0
// Times of a network and of its layers on random images (zeros would be faster than real data), and of its convolutions
// compared with other libraries'; the energy they take by the counters of the GPU (NVML) and of the processors'
// packages (RAPL), and the minimum times that a GPU allows, with which `octet bench --layers` and `--layers-of` compare
// kernels; all as text, and as charts that are complete SVG files.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "src/cuda/device.h"
#include "src/engine/engine.h"
#include "src/engine/time_convolutions.h"
#include "src/net/int8_graph.h"

namespace octet {

/// The energy used in some time, by everything that ran and while idle. It is empty where no counter can be read.
struct Energy {
  double seconds = 0;
  std::optional<double> gpu_joules, cpu_joules;
};

/// Measures the energy since it was made.
class EnergyMeter {
 public:
  static constexpr const char* kPowercap = "/sys/class/powercap";  ///< Linux's RAPL counters, which only root may read

  /// Starts a measurement.
  explicit EnergyMeter(const std::string& powercap = kPowercap);
  /// Returns the energy since the start. A processor's counter may have wrapped once, as it does after minutes at full
  /// power.
  Energy drawn() const;

 private:
  struct Package {
    std::string counter;          ///< a file, in microjoules
    double begun = 0, range = 0;  ///< joules at the start, and where the counter wraps
  };
  std::vector<Package> packages_;
  std::optional<double> gpu_begun_;
  std::chrono::steady_clock::time_point start_;
};

/// The maximum rates of a GPU.
struct ChipRates {
  double bytes_per_second = 0;       ///< of its memory: bytes read plus bytes written
  double operations_per_second = 0;  ///< int8 on tensor cores without sparsity; a multiply-add is two operations
  /// True: measured on a GPU of this name, by a large copy and good kernels. False: the peaks that follow from the
  /// GPU's clocks, which are a little higher and never exceeded.
  bool measured = false;
};

/// How a network is measured.
struct BenchOptions {
  int batch = 1;                        ///< at most the program's max_batch
  double seconds = 3;                   ///< duration of the measurement after warm-up, of at least 3 runs
  bool layers = true;                   ///< time every layer too, in about the same time again
  std::optional<ChipRates> rates = {};  ///< of the GPU, for LayerTime::floor_ms
};

/// The time of one node.
struct LayerTime {
  std::string name, kernel;
  std::string engine;       ///< which engine ran the node, if the program's engine has a fallback; else ""
  double milliseconds = 0;  ///< median of one batch
  long multiply_adds = 0;   ///< of one batch; 0 if not a convolution or linear, or if merged into an earlier node
  long bytes = 0;           ///< of one batch: inputs, weights and output once each; 0 if merged into an earlier node
  double floor_ms = 0;      ///< floor_milliseconds(); 0 if not on a GPU, if rates are not known, or if merged
};

/// The times of a network.
struct BenchResult {
  int batch = 0;
  long runs = 0;
  double compile_seconds = 0;  ///< includes choosing kernels, unless choices were kept; 0 if not timed
  /// Time of one batch, from images in host memory (page-locked for an engine on the GPU) to logits in host memory.
  double median_ms = 0, p99_ms = 0;
  double images_per_second = 0;  ///< batch / median
  long multiply_adds = 0;        ///< of one batch
  /// Time of one batch on the GPU alone, by its events: images and logits stay there. 0 for an engine on the host.
  double device_ms = 0, device_p99_ms = 0;
  /// Rate from host memory to host memory where a batch is copied while the previous one is computed
  /// (Program::submit). 0 for an engine on the host.
  double overlapped_images_per_second = 0;
  /// Energy of one image (EnergyMeter): on the GPU while batches overlap, for an engine on the host without the GPU's.
  /// 0 if there is no counter, or if the measurement took less than a second.
  double gpu_joules = 0, cpu_joules = 0;
  double gpu_watts = 0;
  std::optional<ChipRates> rates = {};  ///< of the GPU, for the floors of layers
  /// The time of each node. On the host it is the time between taps: a tap waits for each layer and may copy its output
  /// to the graph's layout, so the sum exceeds median_ms; compare layers with each other. On the GPU each node is
  /// replayed by itself between events; nodes without a kernel take 0.
  std::vector<LayerTime> layers;
};

/// Measures `program`, which was compiled from `graph`. Throws Error(usage) for invalid options, Error(interrupted) on
/// Ctrl-C.
BenchResult bench_program(Program& program, const Int8Graph& graph, const BenchOptions& options);

/// Returns a few lines on the network and, if layers were timed, a table of them.
std::string describe(const BenchResult& result);

/// Returns the multiply-adds of a node for one image; 0 if it is neither conv2d nor linear.
long node_multiply_adds(const Int8Node& node);

/// Returns the bytes that a node must move for `batch` images: inputs, weights and output, each once.
long node_bytes(const Int8Graph& graph, int node, int batch);

/// Returns the measured rates of an H200, and of any other GPU the peaks by its clocks, memory bus and multiprocessors.
/// Returns nothing if the rate of its tensor cores is not known here (compute capability 10.3, 11.0, 12.1 and newer),
/// or if it uses the processor's memory, whose clock CUDA does not tell.
std::optional<ChipRates> chip_rates(const GpuStatus& gpu);

/// Returns the rates of the current GPU; nothing if there is none, or in a build without CUDA.
std::optional<ChipRates> chip_rates();

/// Returns "floors: at 3.35 TB/s and 2141 TOPS, the peaks of such a GPU", or why there are no floors.
std::string describe(const std::optional<ChipRates>& rates);

/// Returns the minimum time for so many bytes and operations: the larger of bytes over the memory's rate and operations
/// over that of the tensor cores.
double floor_milliseconds(long bytes, long operations, const ChipRates& rates);

/// Returns the minimum time of a node for one batch. Inputs, weights and output count once each; of a convolution's
/// input only the pixels that a window reads count.
double floor_milliseconds(const Int8Graph& graph, int node, int batch, const ChipRates& rates);

/// Returns how many input values of one image no window of a convolution reads, because its stride exceeds its kernel;
/// else 0.
long pixels_not_read(const Int8Graph& graph, int node);

/// The times of a network's layers on one engine.
struct LayerSeries {
  std::string name, colour;
  std::vector<double> milliseconds;  ///< by layer; 0 where the series does not have the layer
  std::vector<std::string> notes;    ///< by layer, for the tooltip: the kernel
};

/// Returns a chart with one bar for each layer and series.
std::string svg_layer_bars(const std::string& title, const std::vector<std::string>& layers,
                           const std::vector<LayerSeries>& series);

/// Returns the colour of the n-th series.
std::string series_colour(size_t index);

/// A measured rate.
struct SweepPoint {
  std::string engine;
  int size = 0, batch = 0;  ///< height and width of images, and batch; 0 where all points have the same
  double images_per_second = 0;
};

/// Returns a chart of one or more points. If the points have a batch, it is over the batch, with one curve for each
/// engine and size; else over the size, with one curve for each engine.
std::string svg_sweep(const std::string& title, const std::vector<SweepPoint>& points);

// Times of every distinct convolution of a network on octet's CUDA kernels, cuDNN int8, cuDNN fp16 and CUTLASS int8.

/// A convolution of a network. Those with the same geometry, residual and clamp are one.
struct DistinctConv {
  int node = 0;             ///< the first node
  int count = 0;            ///< how often it occurs
  std::string description;  ///< "64, 56x56 -> 256, 1x1 + residual"
};

/// Returns the distinct convolutions of a network, in its order.
std::vector<DistinctConv> distinct_convolutions(const Int8Graph& graph);

inline constexpr std::array<const char*, kContestants> kContestantNames = {"cuda int8", "cudnn int8", "cudnn fp16",
                                                                           "cutlass int8"};

/// The times of one convolution.
struct ConvRow {
  DistinctConv conv;
  long multiply_adds = 0;                  ///< of one batch
  std::array<long, kContestants> bytes{};  ///< of one batch: input, residual, weights and output, each once
  ConvolutionTimes times{};
  double floor_ms = 0;  ///< the minimum time on this GPU; 0 if its rates are not known (chip_rates)
};

/// The times of all convolutions.
struct ConvBench {
  std::string network, machine;  ///< machine: "NVIDIA H200, cuDNN 9.19.0"
  int batch = 0;
  std::vector<Contestant> contestants;  ///< those that were measured; the rest of each array is empty
  std::vector<ConvRow> convs;
  int compared = 0;                             ///< rows that all contestants ran
  std::array<double, kContestants> weighted{};  ///< milliseconds of those rows, weighted by count
  double weighted_floor = 0;                    ///< floors of those rows, weighted by count
  std::optional<ChipRates> rates = {};          ///< of the GPU, for floors
};

/// Times the convolutions of a graph with symmetric_s8 activations. Throws what time_convolutions() throws.
ConvBench bench_convolutions(const Int8Graph& graph, const TimingOptions& options);

/// Returns whether every contestant ran this row: only such rows are compared.
bool all_ran(const ConvBench& bench, const ConvRow& row);

/// Appends a measured row and updates the sums.
void add_row(ConvBench& bench, ConvRow row);

/// Returns a table of times, TOPS, GB/s, the floor, and cuda's time relative to it and to cuDNN's; then the weighted
/// sums and why contestants did not run.
std::string describe(const ConvBench& bench);

}  // namespace octet
