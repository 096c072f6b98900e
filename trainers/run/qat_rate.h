// The learning rate of QAT where the recipe sets none.
#pragma once

#include <string>

#include "src/graph/graph.h"
#include "src/recipe/recipe.h"

namespace octet {

struct QatRate {
  double rate = 0;
  std::string why;  ///< for the user; "": the recipe set it
};

/// qat.learning_rate, or with 0 there one that suits `graph`, the float network: QAT begins with trained weights, which
/// the rate of a training from the beginning would ruin, and without BatchNorm a step's size is not normalized away.
QatRate qat_rate(const Recipe& recipe, const Graph& graph);

}  // namespace octet
