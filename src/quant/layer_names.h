// Names of layers, for messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octet {

/// The `count` names that the glob is nearest to, nearest first, "a, b, c"; for messages.
std::string nearest_names(std::string_view glob, std::vector<std::string_view> names, size_t count = 3);

}  // namespace octet
