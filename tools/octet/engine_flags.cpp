#include "tools/octet/engine_flags.h"

#include <algorithm>

#include "src/common/error.h"
#include "src/recipe/fallback.h"

namespace octet::cli {
namespace {

bool among(const char* engine, const std::vector<std::string>& engines) {
  return std::find(engines.begin(), engines.end(), engine) != engines.end();
}

template <typename Text>
void add(CLI::App& command, Text& fallback) {
  command.add_option("--fallback", fallback, "cudnn, cutlass: what runs the nodes they cannot: none, cuda")
      ->check(CLI::IsMember({"none", "cuda"}));
}

}  // namespace

void add_fallback(CLI::App& command, std::string& fallback) { add(command, fallback); }

void add_fallback(CLI::App& command, std::optional<std::string>& fallback) { add(command, fallback); }

void check_fallback(const std::string& who, const std::string& fallback, const std::vector<std::string>& engines) {
  switch (fallback_fault(engines, fallback)) {
    case FallbackFault::none:
      return;
    case FallbackFault::missing:
      throw usage_error(who + "engine " + partial_engine(engines) +
                        " cannot run every layer (the input, for one): add --fallback cuda");
    case FallbackFault::useless:
      throw usage_error(who +
                        "--fallback is for engines cudnn and cutlass: add one to --engine, or leave --fallback out");
  }
}

void check_kernels(const std::string& who, const std::string& kernels, const std::vector<std::string>& engines) {
  if (kernels == "auto" || among("cpu", engines) || among("cuda", engines)) return;
  throw usage_error(who + "--kernels is for engines cpu and cuda: add one to --engine, or leave --kernels out");
}

}  // namespace octet::cli
