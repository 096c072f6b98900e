// What a single key cannot tell: values that follow from data.format, and keys that must fit each other.
#pragma once

#include <map>
#include <string>

#include "src/recipe/recipe.h"

namespace octet {

/// Where a key was set, "recipe.yaml:12:5"; keys with their default value are absent.
using Places = std::map<std::string, std::string>;

/// Replaces data.path "" and channels, image_size 0 and mean, std [] by what is usual for data.format; and
/// validation_fraction, unless it was set, by 0 where data.validation is named.
void resolve_defaults(Recipe& recipe, const Places& places);

/// Throws Error(usage) naming the place (or `name`), both keys and both values. Needs a resolved recipe.
void check_consistency(const Recipe& recipe, const Places& places, const std::string& name);

}  // namespace octet
