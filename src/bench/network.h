// Time of a whole network and of its layers, on random pictures (zeros would be faster than real data).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/bench/conv_floor.h"
#include "src/engine/engine.h"

namespace octet {

struct BenchOptions {
  int batch = 1;                        ///< at most what the program was compiled for
  double seconds = 3;                   ///< of measuring, after warm-up; at least 3 runs are made
  bool layers = true;                   ///< also time every layer, for about as long again
  std::optional<ChipRates> rates = {};  ///< of the GPU, for LayerTime::floor_ms
};

struct LayerTime {
  std::string name, kernel;
  std::string engine;       ///< where another than the program's own may run a node (a fallback); else ""
  double milliseconds = 0;  ///< median of one batch
  long multiply_adds = 0;   ///< of one batch; 0: not a convolution or linear, or counted as the node it ran with
  long bytes = 0;           ///< of one batch: every input, weight and output once; 0: it ran with the node before it
  double floor_ms = 0;      ///< src/bench/conv_floor.h; 0: not on a GPU, of rates not known, or no kernel of its own
};

struct BenchResult {
  int batch = 0;
  long runs = 0;
  double compile_seconds = 0;  ///< with choosing kernels, where no choice was kept; 0: not timed
  /// Of one batch: pictures in host memory (page-locked for an engine on the GPU) to logits in host memory.
  double median_ms = 0, p99_ms = 0;
  double images_per_second = 0;  ///< batch / median
  long multiply_adds = 0;        ///< of one batch
  /// By the GPU's events, pictures and logits staying there; 0 for an engine on the host.
  double device_ms = 0, device_p99_ms = 0;
  /// From host memory to host memory, the images of a batch travelling while the one before it is computed
  /// (Program::submit); 0 for an engine on the host.
  double overlapped_images_per_second = 0;
  /// Of one image, of everything the counters see, idle or not (src/bench/energy.h), while batches overlapped; for an
  /// engine on the host while they did not, and no GPU's. 0: no counter, or measured for less than a second.
  double gpu_joules = 0, cpu_joules = 0;
  double gpu_watts = 0;
  std::optional<ChipRates> rates = {};  ///< of the GPU, by which layers have floors
  /// By node. On the host: the time between taps. A tap waits for each layer and may copy its output into the graph's
  /// layout, so that the sum exceeds median_ms; compare layers with each other. On the GPU: device events around each
  /// node alone, replayed; nodes without a kernel take 0.
  std::vector<LayerTime> layers;
};

/// `program` was compiled from `graph`. Throws Error(usage) for options that make no sense, Error(interrupted) on
/// Ctrl-C.
BenchResult bench_program(Program& program, const Int8Graph& graph, const BenchOptions& options);

/// One line for the network (two for one on the GPU) and, when layers were timed, a table with their shares.
std::string describe(const BenchResult& result);

/// Multiply-adds of one image through the node; 0 when it is no conv2d or linear.
long node_multiply_adds(const Int8Node& node);

/// Bytes that running the node on `batch` images must move at least: inputs, weights and output, each once.
long node_bytes(const Int8Graph& graph, int node, int batch);

}  // namespace octet
