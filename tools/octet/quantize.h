// SPDX-License-Identifier: Apache-2.0
// What `octet quantize NETWORK` and `octet analyze NETWORK` share: their options, and what is shown of the result.
#pragma once

#include <CLI/CLI.hpp>

#include "src/base/error.h"
#include "tools/octet/commands.h"
#include "trainers/run/quantize_files.h"

namespace octet::cli {

/// Declares how images become the network's input, what of the zoo or an ONNX file is taken, and how it is quantized:
/// all options but NETWORK, --images, --limit and the files that are written.
void add_network_options(CLI::App& command, QuantizeOptions& options);

/// Quantizes a network by images and shows what each of its layers costs; writes nothing but the page.
ExitCode analyze_network(const Common& common, QuantizeOptions options);

}  // namespace octet::cli
