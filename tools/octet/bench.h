// SPDX-License-Identifier: Apache-2.0
// What octet bench is asked for, and the measurement of whole networks.
#pragma once

#include <string>
#include <vector>

#include "src/net/int8_graph.h"
#include "tools/octet/commands.h"

namespace octet::cli {

/// The command line of octet bench.
struct BenchCommand {
  std::string checkpoint, model, layers_of, kernels = "auto", sparsity = "none", save, svg;
  std::string fallback;              ///< "": "cuda" if an engine needs one
  std::string activation;            ///< "": affine_u8, or symmetric_s8 if a named engine supports no other
  std::vector<std::string> engines;  ///< empty: the engine that auto prefers
  std::vector<int> batches = {1};
  std::vector<int> sizes = {224};  ///< input heights and widths; a checkpoint has its own
  int threads = 0;
  double seconds = 3;
  bool layers = false;
};

/// Returns a network of the zoo with random weights of the pattern `sparsity` and activations of the scheme
/// `activation`.
Int8Graph random_network(const std::string& model, int size, const std::string& activation,
                         const std::string& sparsity);

/// Times whole networks. Measures what it can, and at the end throws the first Error of what it could not measure.
ExitCode bench_network(const Common& common, BenchCommand command);

}  // namespace octet::cli
