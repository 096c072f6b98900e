// SPDX-License-Identifier: Apache-2.0
// What is chosen after training: the scheme and calibrator of post-training quantization (octet calibrate), and the
// bits of each layer (octet search). Choices are made on validation images; test images are read once, for what was
// chosen.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/names.h"
#include "src/eval/evaluate.h"
#include "src/quant/bit_search.h"
#include "src/quant/calibrate.h"
#include "src/quant/plan.h"
#include "trainers/run/run.h"

namespace octet {

/// Returns an engine's program. Throws Error(promise) if the engine refuses the graph.
using CompileInt8 = std::function<std::unique_ptr<Program>(const Run& run, const Int8Graph& graph)>;

/// Returns the network of `weights`, quantized and calibrated as run.recipe says. Repairs change a copy of the weights.
/// pass: as calibrate_as_recipe() takes it.
QuantizedModel calibrated(const Run& run, const Weights& weights, CalibrationPass* pass = nullptr);

struct PtqResult {
  ActivationScheme activation = ActivationScheme::affine_u8;
  std::optional<CalibrationMethod> method;  ///< empty: auto
  std::string refused;                      ///< why the engine does not run this scheme; "": it does
  double score = 0, loss = 0;               ///< on the validation images; score: top-1, with labels of pixels mean IoU

  bool better_than(const PtqResult& other) const;  ///< by score, then by loss; never if refused
};

struct PtqChoice {
  double float_validation = 0;  ///< score of the float network
  std::vector<PtqResult> results;
  size_t chosen = 0;  ///< index into results
  Int8Graph graph;    ///< the chosen network, with its test accuracy
  Evaluation float_test, int8_test;
  Paired lost;            ///< of the two
  std::string diagnosis;  ///< diagnose(), where int8 is significantly below float; else ""
};

/// Tries run.recipe's scheme and calibrator or, with `all`, every combination. If an engine refuses one of them, the
/// others still count; its Error is thrown when none is left.
PtqChoice choose_ptq(Run run, const Weights& weights, bool all, const CompileInt8& compile);

enum class BitCostKind { size, operations };
inline constexpr std::array<Named<BitCostKind>, 2> kBitCosts = {
    {{BitCostKind::size, "size"}, {BitCostKind::operations, "operations"}}};

struct BitSearchOptions {
  std::vector<int> bits = {8, 4};  ///< candidates, descending
  /// size: searches the bits of weights; operations: also those of the edges that layers write.
  BitCostKind cost = BitCostKind::size;
  int images = 256;                     ///< validation images on which the SQNR of each choice is measured
  int points = 8;                       ///< plans to measure, at least 2
  std::optional<double> accuracy_drop;  ///< percentage points that may be lost against the float network
  std::optional<double> mean_bits;      ///< of weights, at most
};

/// The weights of a layer, or the edge that it writes, whose bits are searched.
struct SearchedLayer {
  std::string name;
  BitChoice::What what;
  /// By candidate but the first: SQNR of the logits if this alone has so many bits, without the noise of bits.front()
  /// everywhere; infinite if nothing is lost.
  std::vector<double> alone_db;
};

/// A plan that was quantized after training and measured on all validation images.
struct MeasuredPlan {
  size_t step = 0;                ///< of the search
  std::vector<LayerBits> layers;  ///< for quant.layers, where the general bits are bits.front()
  BitLevels levels;               ///< by searched layer: index of its candidate
  BitCost cost;
  double predicted_db = 0;  ///< SQNR of the logits if the noise of the choices adds up
  double score = 0;         ///< top-1, with labels of pixels mean IoU; without labels what the outputs keep
};

struct BitSearch {
  double float_score = 0;
  std::vector<SearchedLayer> searched;  ///< in the order of the graph
  size_t steps = 0;
  std::vector<MeasuredPlan> plans;  ///< from most to fewest bits
  /// Index of the cheapest plan that keeps accuracy_drop, or of the first with at most mean_bits; empty: none does.
  std::optional<size_t> chosen;
};

/// Searches which layers need fewer bits: by SQNR first, then measured on an engine. Of run.recipe.quant only the
/// general bits change. Throws Error(usage) if nothing can be chosen: fewer than two candidates, not descending or
/// outside 2..8, or every layer pinned.
BitSearch search_bits(const Run& run, const Weights& weights, const BitSearchOptions& options,
                      const CompileInt8& compile);

/// Searches without labels: a plan's score is the share of the outputs that it keeps (1 less OutputErrors::lost()) on
/// `images`, batches of the network's inputs. Throws as search_bits() does, and Error(usage) for several outputs.
BitSearch search_bits_unlabelled(const Run& run, const Weights& weights, const BitSearchOptions& options,
                                 const std::vector<at::Tensor>& images);

/// Returns the recipe with the bits of a plan.
Recipe with_plan(Recipe recipe, const BitSearchOptions& options, const std::vector<LayerBits>& layers);

}  // namespace octet
