// A text taken apart.
#pragma once

#include <string>
#include <vector>

namespace octet {

/// What stands before, between and behind the separators: at least one part. "a,,b" at ',': "a", "", "b".
inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

}  // namespace octet
