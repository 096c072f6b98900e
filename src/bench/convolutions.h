// Every distinct convolution of a network on octet's CUDA kernels, cuDNN int8 and cuDNN fp16, in one run.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/graph/int8_graph.h"

namespace octet {

/// Convolutions of one geometry, residual and clamp are one.
struct DistinctConv {
  int node = 0;             ///< the first of them
  int count = 0;            ///< how often it occurs
  std::string description;  ///< "64, 56x56 -> 256, 1x1 + residual"
};
std::vector<DistinctConv> distinct_convolutions(const Int8Graph& graph);

/// Who is measured, in the order of ConvTimes.
enum Contestant { kCudaInt8, kCudnnInt8, kCudnnFp16, kContestants };
inline constexpr std::array<const char*, kContestants> kContestantNames = {"cuda int8", "cudnn int8", "cudnn fp16"};

struct ConvTime {
  double milliseconds = 0;  ///< of one batch; 0: cannot run it
  std::string kernel;
  std::string reason;  ///< why it cannot
};

struct ConvTimes {
  DistinctConv conv;
  long multiply_adds = 0;                  ///< of one batch
  std::array<long, kContestants> bytes{};  ///< of one batch: input, residual, weights and output, each once
  std::array<ConvTime, kContestants> times{};
};

struct ConvBench {
  std::string network, machine;  ///< machine: "NVIDIA H200, cuDNN 9.19.0"
  int batch = 0;
  std::vector<ConvTimes> convs;
  int compared = 0;                             ///< rows that all contestants ran
  std::array<double, kContestants> weighted{};  ///< milliseconds of those rows, times their counts
};

struct ConvBenchOptions {
  int batch = 128;
  int replays = 15;  ///< the median of these counts
};

/// Random codes and weights; device events; consecutive launches use other buffers, together several times the L2
/// cache. `graph` has symmetric_s8 edges, which all contestants run. Throws Error(usage) where the engines cuda
/// and cudnn cannot run, with the reason, Error(interrupted) on Ctrl-C.
ConvBench bench_convolutions(const Int8Graph& graph, const ConvBenchOptions& options);

/// Whether every contestant ran it: only such rows are compared.
bool all_ran(const ConvTimes& row);

/// Adds a measured row up.
void add_row(ConvBench& bench, ConvTimes row);

/// A table with TOPS, GB/s and cuda's time over cuDNN's, then the weighted sums and the reasons of what did not run.
std::string describe(const ConvBench& bench);

}  // namespace octet
