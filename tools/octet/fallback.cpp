#include "tools/octet/fallback.h"

#include <algorithm>

#include "src/common/error.h"

namespace octet::cli {

void add_fallback(CLI::App& command, std::string& fallback) {
  command.add_option("--fallback", fallback, "cudnn: what runs the nodes it cannot: none, cuda")
      ->check(CLI::IsMember({"none", "cuda"}));
}

void check_fallback(const std::string& command, const std::string& fallback, const std::vector<std::string>& engines) {
  if (fallback == "none" || std::find(engines.begin(), engines.end(), "cudnn") != engines.end()) return;
  throw usage_error(command + ": --fallback is for engine cudnn: add it to --engine, or leave --fallback out");
}

}  // namespace octet::cli
