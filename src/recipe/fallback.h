// Engines that leave nodes to another (cudnn, cutlass) and their fallback belong together: the rule, for recipes and
// for command lines.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace octet {

enum class FallbackFault {
  none,
  missing,  ///< such an engine without one: it cannot run every node, the input for one
  useless,  ///< one without such an engine would change nothing
};

/// The engine among `engines` that cannot run every node, or "". The first: what is said of one holds for the other.
inline std::string partial_engine(const std::vector<std::string>& engines) {
  const auto found = std::find_if(engines.begin(), engines.end(),
                                  [](const std::string& name) { return name == "cudnn" || name == "cutlass"; });
  return found == engines.end() ? "" : *found;
}

inline FallbackFault fallback_fault(const std::vector<std::string>& engines, const std::string& fallback) {
  const bool partial = !partial_engine(engines).empty();
  if (partial == (fallback != "none")) return FallbackFault::none;
  return partial ? FallbackFault::missing : FallbackFault::useless;
}

}  // namespace octet
