// What octet bench was asked for, and its two kinds of measurement.
#pragma once

#include <string>
#include <vector>

#include "src/graph/int8_graph.h"
#include "tools/octet/commands.h"

namespace octet::cli {

struct BenchCommand {
  std::string checkpoint, model, layers_of, kernels = "auto", sparsity = "none", save, svg;
  std::string fallback;              ///< "": "cuda" where an engine needs one
  std::string activation;            ///< "": affine_u8, or symmetric_s8 where an engine that is named takes no other
  std::vector<std::string> engines;  ///< empty: the one that auto prefers
  std::vector<int> batches = {1};
  std::vector<int> sizes = {224};  ///< of a checkpoint: its own
  int threads = 0;
  double seconds = 3;
  bool layers = false;
};

/// A network of the zoo with random weights, of the pattern `sparsity`, and edges of the scheme `activation`.
Int8Graph random_network(const std::string& model, int size, const std::string& activation,
                         const std::string& sparsity);

/// octet bench of whole networks. Measures what it can; throws the first Error of what it could not, at the end.
ExitCode bench_network(const Common& common, BenchCommand command);

/// octet bench --layers-of.
ExitCode bench_layers(const Common& common, const BenchCommand& command);

}  // namespace octet::cli
