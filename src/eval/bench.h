// Time of a whole network and of its layers, on random pictures (zeros would be faster than real data).
#pragma once

#include <string>
#include <vector>

#include "src/engine/engine.h"

namespace octet {

struct BenchOptions {
  int batch = 1;       ///< at most what the program was compiled for
  double seconds = 3;  ///< of measuring, after warm-up; at least 3 runs are made
  bool layers = true;  ///< also time every layer, for about as long again
};

struct LayerTime {
  std::string name, kernel;
  double milliseconds = 0;  ///< median of one batch
  long multiply_adds = 0;   ///< of one batch; 0: not a convolution or linear
};

struct BenchResult {
  int batch = 0;
  long runs = 0;
  double median_ms = 0, p99_ms = 0;  ///< of one batch
  double images_per_second = 0;      ///< batch / median
  long multiply_adds = 0;            ///< of one batch
  /// By node, from the time between taps. A tap waits for each layer and may copy its output into the graph's layout,
  /// so that the sum exceeds median_ms; compare layers with each other.
  std::vector<LayerTime> layers;
};

/// `program` was compiled from `graph`. Throws Error(usage) for options that make no sense, Error(interrupted) on
/// Ctrl-C.
BenchResult bench_program(Program& program, const Int8Graph& graph, const BenchOptions& options);

/// One line for the network and, when layers were timed, a table with their shares.
std::string describe(const BenchResult& result);

}  // namespace octet
