// Engine cudnn and its fallback belong together: the rule, for recipes and for command lines.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace octet {

enum class FallbackFault {
  none,
  missing,  ///< cudnn without one: it cannot run every node, the input for one
  useless,  ///< one without cudnn would change nothing
};

inline FallbackFault fallback_fault(const std::vector<std::string>& engines, const std::string& fallback) {
  const bool cudnn = std::find(engines.begin(), engines.end(), "cudnn") != engines.end();
  if (cudnn == (fallback != "none")) return FallbackFault::none;
  return cudnn ? FallbackFault::missing : FallbackFault::useless;
}

}  // namespace octet
