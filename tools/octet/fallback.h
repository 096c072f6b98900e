// --fallback of the commands that name engines.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace octet::cli {

void add_fallback(CLI::App& command, std::string& fallback);

/// A flag that would change nothing is refused: Error(usage) for a fallback without engine cudnn.
void check_fallback(const std::string& command, const std::string& fallback, const std::vector<std::string>& engines);

}  // namespace octet::cli
