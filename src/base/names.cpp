// SPDX-License-Identifier: Apache-2.0
#include "src/base/names.h"

#include <algorithm>

namespace octet {
namespace {

size_t distance(std::string_view pattern, std::string_view name, bool wildcards) {
  // row[j]: distance of the pattern so far from the first j characters of the name (Wagner and Fischer 1974).
  std::vector<size_t> row(name.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (const char c : pattern) {
    const bool any = wildcards && c == '*', one = wildcards && c == '?';
    const size_t cost = any ? 0 : 1;
    std::vector<size_t> next(row.size());
    next[0] = row[0] + cost;
    for (size_t j = 1; j < row.size(); ++j) {
      const size_t both = row[j - 1] + (one || c == name[j - 1] ? 0 : cost);
      next[j] = std::min({both, row[j] + cost, next[j - 1] + cost});
    }
    row = std::move(next);
  }
  return row.back();
}

}  // namespace

size_t edit_distance(std::string_view word, std::string_view name) { return distance(word, name, false); }

size_t glob_distance(std::string_view glob, std::string_view name) { return distance(glob, name, true); }

std::string nearest(std::string_view word, const std::function<std::string_view(size_t)>& candidate, size_t count) {
  std::string best;
  size_t bound = word.size() / 2 + 1;
  for (size_t i = 0; i < count; ++i) {
    const size_t distance = edit_distance(word, candidate(i));
    if (distance < bound) bound = distance, best = candidate(i);
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names) {
  const auto candidate = [&](size_t i) { return names[i]; };
  const std::string name = nearest(word, candidate, names.size());
  return name.empty() ? "" : "; did you mean '" + name + "'?";
}

}  // namespace octet
