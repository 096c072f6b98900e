// SPDX-License-Identifier: Apache-2.0
// Names that users write: the values of an enum, and the known name nearest to a misspelt one.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.h"

namespace octet {

/// One row of an enum's table of names. Each enum has one table, which is read in both directions.
template <typename E>
struct Named {
  E value;
  std::string_view name;
};

/// Returns the names of a table, in its order.
template <typename E, size_t N>
std::vector<std::string_view> names_in(const std::array<Named<E>, N>& table) {
  std::vector<std::string_view> names;
  for (const Named<E>& row : table) names.push_back(row.name);
  return names;
}

/// Returns the value called `name`. Throws Error(usage) beginning with `key` if there is none:
/// "quant.activation: 'x' is none of symmetric_s8, ...".
template <typename E, size_t N>
E value_named(const std::array<Named<E>, N>& table, std::string_view name, const std::string& key) {
  std::string all;
  for (const Named<E>& row : table) {
    if (row.name == name) return row.value;
    all += (all.empty() ? "" : ", ") + std::string(row.name);
  }
  throw usage_error(key + ": '" + std::string(name) + "' is none of " + all);
}

/// Returns the name of a value that the table holds, as every value of an enum does.
template <typename E, size_t N>
std::string_view name_in(const std::array<Named<E>, N>& table, E value) {
  for (const Named<E>& row : table)
    if (row.value == value) return row.name;
  return "";
}

/// The type in which training computes convolutions and linear layers.
enum class Precision { fp32, bf16, fp16 };
inline constexpr std::array<Named<Precision>, 3> kPrecisions = {
    {{Precision::fp32, "fp32"}, {Precision::bf16, "bf16"}, {Precision::fp16, "fp16"}}};

/// Returns how many characters must be added, dropped or replaced to turn `word` into `name` (Levenshtein distance).
size_t edit_distance(std::string_view word, std::string_view name);

/// Returns how many characters of `glob` or `name` must change until the glob matches the name; 0 if it matches. `*`
/// matches any characters, also none; `?` matches any one character.
size_t glob_distance(std::string_view glob, std::string_view name);

/// Returns that of candidate(0 .. count - 1) with the smallest edit distance to `word`, or "" if every distance is more
/// than half of the word's length.
std::string nearest(std::string_view word, const std::function<std::string_view(size_t)>& candidate, size_t count);

/// Returns "; did you mean 'name'?" for the nearest of `names`, for the end of a message, or "" if none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names);

}  // namespace octet
