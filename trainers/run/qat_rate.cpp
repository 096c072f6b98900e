#include "trainers/run/qat_rate.h"

#include <fmt/core.h>

#include <algorithm>

namespace octet {
namespace {

// Measured: recipes/MEASURED.md, "The rate of QAT that nobody set".
constexpr double kSgd = 0.005, kSgdFewBits = 0.01, kSgdFolded = 0.0005, kAdamw = 1e-4, kAdamwFolded = 1e-5;
constexpr double kOfFloat = 0.1;  ///< of the float phase's peak, at most

}  // namespace

QatRate qat_rate(const Recipe& recipe, const Graph& graph) {
  if (recipe.qat.learning_rate > 0) return {recipe.qat.learning_rate, ""};
  const bool normalized =
      std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.op == Op::batch_norm; });
  const bool adamw = recipe.qat.optimizer == "adamw";
  const bool few_bits = std::min(recipe.quant.weight_bits, recipe.quant.activation_bits) < 8;
  QatRate chosen;
  if (normalized) {
    chosen = {adamw ? kAdamw : few_bits ? kSgdFewBits : kSgd, "as suits a trained network with BatchNorm"};
  } else {
    chosen = {adamw ? kAdamwFolded : kSgdFolded, "as suits a trained network without BatchNorm, or with it folded"};
  }
  const bool was_trained = recipe.train.epochs > 0 && recipe.train.optimizer == recipe.qat.optimizer;
  if (const double most = kOfFloat * recipe.train.learning_rate; was_trained && most < chosen.rate)
    chosen = {most, "a tenth of train.learning_rate"};
  return chosen;
}

}  // namespace octet
