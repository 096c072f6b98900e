// SPDX-License-Identifier: Apache-2.0
// Arguments of the programs that time single kernels.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include "src/base/error.h"

namespace octet {

inline int whole_number(std::string_view word, int least) {
  int value = 0;
  const auto [end, error] = std::from_chars(word.begin(), word.end(), value);
  if (error != std::errc() || end != word.end() || value < least) {
    throw usage_error("'" + std::string(word) + "' is no whole number from " + std::to_string(least) + " on");
  }
  return value;
}

}  // namespace octet
