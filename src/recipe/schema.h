// The one table of recipe keys: key path, where its value lives (and so its type), what is allowed, what it means.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/recipe/recipe.h"

namespace octet {

/// What a value (or each element of a list) may be: one of the choices, or a number of the interval.
struct Rule {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool above_minimum = false;  ///< the minimum itself is not allowed
  bool below_maximum = false;  ///< the maximum itself is not allowed
  std::vector<std::string_view> choices;
};

/// Reference to a value inside a recipe; the alternative is the key's type.
template <class T>
using Reference = std::function<T&(Recipe&)>;
using Slot =
    std::variant<Reference<bool>, Reference<int>, Reference<uint64_t>, Reference<double>, Reference<std::string>,
                 Reference<std::vector<int>>, Reference<std::vector<double>>, Reference<std::vector<std::string>>,
                 Reference<std::vector<GraphNodeRecipe>>, Reference<std::vector<LayerBitsRecipe>>>;

struct Field {
  std::string key;  ///< "qat.epochs"; "seed" has no section
  Slot slot;
  Rule rule;
  std::string meaning;    ///< one line, for recipes/README.md
  bool required = false;  ///< must be in the file or set by an override
};

/// All keys, in the order in which a recipe is written.
const std::vector<Field>& schema();

std::string type_name(const Field& field);  ///< "integer", "list of numbers"
std::string allowed(const Field& field);    ///< "sgd, adamw", "0 .. 1", "> 0"

/// Attributes a node of model.graph may have.
const std::vector<std::string_view>& graph_attributes();

}  // namespace octet
