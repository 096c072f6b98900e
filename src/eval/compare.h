// Layer by layer: do all programs give the same bytes? The promise of octet as a tool.
#pragma once

#include <string>
#include <vector>

#include "src/data/loader.h"
#include "src/engine/engine.h"

namespace octet {

struct LayerDifference {
  std::string layer;
  long codes = 0;               ///< compared
  std::vector<long> differing;  ///< against program 0, one for each further program
  std::vector<int>
      largest_lsb;  ///< largest |difference| in codes; for the logits: of their bit patterns in ULP, capped
};

struct Comparison {
  std::vector<std::string> programs;  ///< [0] is what the others are held against
  long images = 0;
  std::vector<LayerDifference> layers;
  std::vector<long> differing_predictions;
  bool identical() const;
};

struct NamedProgram {
  std::string name;
  Program* program;
};

/// Runs all programs over the same batches with taps on every node.
Comparison compare(const Int8Graph& graph, const std::vector<NamedProgram>& programs, const Dataset& dataset,
                   const std::vector<size_t>& indices, const Transform& transform, int batch_size);

/// A table for people: one line a layer, differing layers marked; and the verdict.
std::string describe(const Comparison& comparison);

}  // namespace octet
