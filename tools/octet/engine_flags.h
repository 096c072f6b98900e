// --fallback and --kernels of the commands that name engines.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace octet::cli {

void add_fallback(CLI::App& command, std::string& fallback);
void add_fallback(CLI::App& command, std::optional<std::string>& fallback);

/// Error(usage), beginning with `who` ("bench: "), for cudnn or cutlass without a fallback, and for a fallback without
/// them: a flag that would change nothing is refused.
void check_fallback(const std::string& who, const std::string& fallback, const std::vector<std::string>& engines);

/// Likewise for kernels other than "auto" without engine cpu or cuda.
void check_kernels(const std::string& who, const std::string& kernels, const std::vector<std::string>& engines);

}  // namespace octet::cli
