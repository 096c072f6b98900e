// How far a word, or a glob, is from a name.
#pragma once

#include <cstddef>
#include <string_view>

namespace octet {

/// How many characters of either must be added, dropped or replaced to make them equal.
size_t edit_distance(std::string_view word, std::string_view name);

/// The same until the glob matches the name; 0: it does. `*` stands for any characters, none included, `?` for any one.
size_t glob_distance(std::string_view glob, std::string_view name);

}  // namespace octet
