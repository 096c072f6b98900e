// Post-training quantization with several schemes and calibrators: the best is chosen on the validation images, and
// only the chosen one meets the test images.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/eval/evaluate.h"
#include "trainers/run/run.h"

namespace octet {

struct PtqResult {
  std::string activation, method;
  std::string refused;         ///< why the engine does not run this scheme; else
  double score = 0, loss = 0;  ///< on the validation images; score: top-1, of pixels' labels mean IoU

  bool better_than(const PtqResult& other) const;  ///< by score, then by loss; a refused one never
};

struct PtqChoice {
  double float_validation = 0;  ///< its score
  std::vector<PtqResult> results;
  size_t chosen = 0;  ///< of results
  Int8Graph graph;    ///< the chosen one's, with its test accuracy
  Evaluation float_test, int8_test;
};

/// An engine's program; Error(promise) when the engine refuses the graph.
using CompileInt8 = std::function<std::unique_ptr<Program>(const Run& run, const Int8Graph& graph)>;

/// The network of `weights`, quantized and calibrated as run.recipe says. The weights stay: repairs change a copy.
QuantizedModel calibrated(const Run& run, Weights weights);

/// The same as engines run it.
Int8Graph quantize_trained(const Run& run, const Weights& weights);

/// Tries run.recipe's scheme and calibrator, or with `all` every one of both. An engine that refuses one of them loses
/// that result only; its Error is thrown when none is left.
PtqChoice choose_ptq(Run run, const Weights& weights, bool all, const CompileInt8& compile);

}  // namespace octet
