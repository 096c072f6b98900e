// SPDX-License-Identifier: Apache-2.0
// Times of every distinct convolution of a network on octet's CUDA kernels, cuDNN int8, cuDNN fp16 and CUTLASS int8.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "src/bench/network.h"
#include "src/engine/time_convolutions.h"

namespace octet {

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
  double weighted_floor = 0;                    ///< their floors, weighted likewise
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
