#include "src/quant/layer_names.h"

#include <algorithm>
#include <utility>

namespace octet {

size_t glob_distance(std::string_view glob, std::string_view name) {
  // row[j]: distance of the glob so far from the first j characters of the name (Wagner and Fischer 1974).
  std::vector<size_t> row(name.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (const char c : glob) {
    std::vector<size_t> next(row.size());
    next[0] = c == '*' ? row[0] : row[0] + 1;
    for (size_t j = 1; j < row.size(); ++j) {
      const size_t both = row[j - 1] + (c == '?' || c == '*' || c == name[j - 1] ? 0 : 1);
      const size_t only_glob = row[j] + (c == '*' ? 0 : 1), only_name = next[j - 1] + (c == '*' ? 0 : 1);
      next[j] = std::min({both, only_glob, only_name});
    }
    row = std::move(next);
  }
  return row.back();
}

std::string nearest_names(std::string_view glob, std::vector<std::string_view> names, size_t count) {
  std::vector<std::pair<size_t, std::string_view>> by_distance;
  for (const std::string_view name : names) by_distance.emplace_back(glob_distance(glob, name), name);
  std::stable_sort(by_distance.begin(), by_distance.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text;
  for (size_t i = 0; i < std::min(count, by_distance.size()); ++i) {
    text += (text.empty() ? "" : ", ") + std::string(by_distance[i].second);
  }
  return text;
}

}  // namespace octet
