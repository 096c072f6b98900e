#include "src/quant/layer_names.h"

#include <algorithm>
#include <utility>

#include "src/common/edit_distance.h"

namespace octet {

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
