#include "tools/octet/fallback.h"

#include <algorithm>

#include "src/common/error.h"

namespace octet::cli {
namespace {

template <typename Text>
void add(CLI::App& command, Text& fallback) {
  command.add_option("--fallback", fallback, "cudnn: what runs the nodes it cannot: none, cuda")
      ->check(CLI::IsMember({"none", "cuda"}));
}

}  // namespace

void add_fallback(CLI::App& command, std::string& fallback) { add(command, fallback); }

void add_fallback(CLI::App& command, std::optional<std::string>& fallback) { add(command, fallback); }

bool names_cudnn(const std::vector<std::string>& engines) {
  return std::find(engines.begin(), engines.end(), "cudnn") != engines.end();
}

void check_fallback(const std::string& who, const std::string& fallback, const std::vector<std::string>& engines) {
  if (fallback == "none" || names_cudnn(engines)) return;
  throw usage_error(who + "--fallback is for engine cudnn: add it to --engine, or leave --fallback out");
}

}  // namespace octet::cli
