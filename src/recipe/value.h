// One value of a recipe: from YAML with every check, and back to YAML.
#pragma once

#include <string>

#include "src/recipe/schema.h"
#include "src/recipe/yaml.h"

namespace octet {

/// Stores `node` where `field` lives in `recipe`. Throws Error(usage) "name:line:column: key: what; allowed: ...".
void assign(const Field& field, const YamlNode& node, const std::string& name, Recipe& recipe);

/// The value as recipe text, on one line except for graphs and layers; numbers are the shortest text that reads back as
/// the same.
std::string value_text(const Field& field, const Recipe& recipe);

/// `text` for a message: quoted, cut when long.
std::string shown(const std::string& text);

/// "what; allowed: choices".
std::string with_allowed(const std::string& what, const std::string& choices);

/// "; did you mean 'activation'?", or "" when nothing is near.
std::string suggestion(const std::string& word, const std::vector<std::string_view>& candidates);

}  // namespace octet
