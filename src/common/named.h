// Names of an enum's values, as recipes and command lines write them: one table an enum, read in both directions.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "src/common/error.h"

namespace octet {

template <typename E>
struct Named {
  E value;
  std::string_view name;
};

template <typename E, size_t N>
std::vector<std::string_view> names_in(const std::array<Named<E>, N>& table) {
  std::vector<std::string_view> names;
  for (const Named<E>& row : table) names.push_back(row.name);
  return names;
}

/// `key`: for the message, "quant.activation: 'x' is none of symmetric_s8, ...", an Error(usage).
template <typename E, size_t N>
E value_named(const std::array<Named<E>, N>& table, std::string_view name, const std::string& key) {
  std::string all;
  for (const Named<E>& row : table) {
    if (row.name == name) return row.value;
    all += (all.empty() ? "" : ", ") + std::string(row.name);
  }
  throw usage_error(key + ": '" + std::string(name) + "' is none of " + all);
}

}  // namespace octet
