// Globs over the names of layers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octet {

/// How many characters of `glob` or `name` must be added, dropped or replaced so that the glob matches the name; 0: it
/// does. `*` stands for any characters, none included, `?` for any one.
size_t glob_distance(std::string_view glob, std::string_view name);

/// The `count` names that the glob is nearest to, nearest first, "a, b, c"; for messages.
std::string nearest_names(std::string_view glob, std::vector<std::string_view> names, size_t count = 3);

}  // namespace octet
