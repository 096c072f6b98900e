// Mixed precision after training: which layers can do with fewer bits, by SQNR first, then measured on an engine.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "src/common/named.h"
#include "src/quant/bit_search.h"
#include "trainers/run/ptq_choice.h"

namespace octet {

enum class BitCostKind { size, operations };
inline constexpr std::array<Named<BitCostKind>, 2> kBitCosts = {
    {{BitCostKind::size, "size"}, {BitCostKind::operations, "operations"}}};

struct BitSearchOptions {
  std::vector<int> bits = {8, 4};  ///< candidates, falling
  BitCostKind cost =
      BitCostKind::size;                ///< size: of weights; operations: of weights and of the edges that layers write
  int images = 256;                     ///< validation images that the SQNR of each choice is taken on
  int points = 8;                       ///< plans to measure, at least 2
  std::optional<double> accuracy_drop;  ///< points that may be lost to the float network on the validation images
  std::optional<double> mean_bits;      ///< of weights
};

/// The weights of a layer or the edge it writes, whose bits are searched.
struct SearchedLayer {
  std::string name;
  BitChoice::What what;
  /// By candidate but the first: SQNR of the logits with this alone of so many bits, what bits.front() costs not
  /// counted; infinite: nothing is lost.
  std::vector<double> alone_db;
};

/// A plan that was quantized after training and measured on all validation images.
struct MeasuredPlan {
  size_t step = 0;                ///< of the search
  std::vector<LayerBits> layers;  ///< for quant.layers, where the general bits are bits.front()
  BitLevels levels;               ///< by searched layer: which of the candidates it has
  BitCost cost;
  double predicted_db = 0;  ///< SQNR of the logits, the errors of single choices added up
  double score = 0;         ///< top-1, of pixels' labels mean IoU
};

struct BitSearch {
  double float_score = 0;
  std::vector<SearchedLayer> searched;  ///< in the order of the graph
  size_t steps = 0;
  std::vector<MeasuredPlan> plans;  ///< the most bits first
  /// With accuracy_drop the cheapest that keeps to it, with mean_bits the first of no more; none: there is none.
  std::optional<size_t> chosen;
};

/// Throws Error(usage) when nothing can be chosen: fewer than two candidates, not falling, outside 2..8, or every layer
/// pinned. Nothing is decided on test images. `run.recipe.quant` keeps what it says but for the general bits.
BitSearch search_bits(const Run& run, const Weights& weights, const BitSearchOptions& options,
                      const CompileInt8& compile);

/// The recipe of `run` with a plan's bits.
Recipe with_plan(Recipe recipe, const BitSearchOptions& options, const std::vector<LayerBits>& layers);

}  // namespace octet
