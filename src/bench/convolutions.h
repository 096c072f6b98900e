// Every distinct convolution of a network on octet's CUDA kernels, cuDNN int8 and fp16, CUTLASS int8, in one run.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "src/bench/conv_floor.h"
#include "src/engine/time_convolutions.h"

namespace octet {

/// Convolutions of one geometry, residual and clamp are one.
struct DistinctConv {
  int node = 0;             ///< the first of them
  int count = 0;            ///< how often it occurs
  std::string description;  ///< "64, 56x56 -> 256, 1x1 + residual"
};
std::vector<DistinctConv> distinct_convolutions(const Int8Graph& graph);

inline constexpr std::array<const char*, kContestants> kContestantNames = {"cuda int8", "cudnn int8", "cudnn fp16",
                                                                           "cutlass int8"};

struct ConvRow {
  DistinctConv conv;
  long multiply_adds = 0;                  ///< of one batch
  std::array<long, kContestants> bytes{};  ///< of one batch: input, residual, weights and output, each once
  ConvolutionTimes times{};
  double floor_ms = 0;  ///< the least time on this GPU; 0: its rates are not known (chip_rates)
};

struct ConvBench {
  std::string network, machine;  ///< machine: "NVIDIA H200, cuDNN 9.19.0"
  int batch = 0;
  std::vector<Contestant> contestants;  ///< who was measured; the rest of each array is empty
  std::vector<ConvRow> convs;
  int compared = 0;                             ///< rows that all contestants ran
  std::array<double, kContestants> weighted{};  ///< milliseconds of those rows, times their counts
  double weighted_floor = 0;                    ///< the same of their floors
  std::optional<ChipRates> rates = {};          ///< of the GPU, for floors
};

/// `graph` has symmetric_s8 edges. Throws as time_convolutions() does.
ConvBench bench_convolutions(const Int8Graph& graph, const TimingOptions& options);

/// Whether every contestant of the bench ran it: only such rows are compared.
bool all_ran(const ConvBench& bench, const ConvRow& row);

/// Adds a measured row up.
void add_row(ConvBench& bench, ConvRow row);

/// A table with TOPS, GB/s, the floor, cuda's time over it and over cuDNN's, then the weighted sums and the reasons of
/// what did not run.
std::string describe(const ConvBench& bench);

}  // namespace octet
