// What commands are given where a recipe or a run directory belongs: a network's own file is told from both.
#pragma once

#include <string>
#include <vector>

#include "src/recipe/recipe.h"

namespace octet {

/// "" for a folder, a missing file and any file that may be a recipe; of an ONNX, safetensors or PyTorch file what it
/// is and which command or recipe key takes it, for messages: "a float network; octet train RECIPE --set ...".
std::string kind_of_network_file(const std::string& path);

/// read_recipe(), but Error(usage) with the kind_of_network_file().
Recipe read_given_recipe(const std::string& path, const std::vector<std::string>& overrides);

}  // namespace octet
