// SPDX-License-Identifier: Apache-2.0
// What `octet quantize`, `octet analyze` and `octet search` of a NETWORK share: what is one, its options, and what is
// shown of the result.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "src/base/error.h"
#include "tools/octet/commands.h"
#include "trainers/run/quantize.h"

namespace octet::cli {

/// Declares how images become the network's input, what of the zoo or an ONNX file is taken, and how it is quantized:
/// all options but NETWORK, --images, --limit and the files that are written.
void add_network_options(CLI::App& command, QuantizeOptions& options);

/// Declares --repair.
void add_repair(CLI::App& command, QuantizeOptions& options);

/// Whether the target of command `who` is a network, which is quantized by images, in place of a recipe or run. Throws
/// Error(usage) for a network without images or with --set, and for images or other options of a network without one.
bool is_network(const std::string& who, const Common& common, const std::string& target, const QuantizeOptions& network,
                bool options_given);

/// Quantizes a network by images and shows what each of its layers costs; writes nothing but the page.
ExitCode analyze_network(const Common& common, QuantizeOptions options);

}  // namespace octet::cli
