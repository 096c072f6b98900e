// SPDX-License-Identifier: Apache-2.0
// What `octet quantize`, `octet analyze` and `octet search` of a NETWORK share: what is one, its options, and what is
// shown of the result.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <string>

#include "src/base/error.h"
#include "src/base/text.h"
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

// What is shown of a network that was quantized by images: for people, as JSON, and as a page (quantized.cpp).

/// What the tables' column "lost" is.
inline constexpr const char* kLegend =
    "lost: noise / (noise + signal) of an output, mean over images; signal: what differs from the output's median";

/// Returns what else is to be said of the column, with a line end, or "": silence_note().
std::string lost_note(const Quantized& result);

TextTable outputs_table(const Quantized& result);
/// Returns a table of at most `most` layers that were measured alone, the one that costs most first.
TextTable layers_table(const Quantized& result, size_t most);
nlohmann::ordered_json outputs_json(const Quantized& result);
nlohmann::ordered_json layers_json(const Quantized& result);
std::string json_text(const nlohmann::ordered_json& document);  ///< indented, with U+FFFD for what is no UTF-8

/// Returns what `octet quantize` prints. out: the checkpoint, which is there.
std::string quantized_text(const Quantized& result, const std::string& out);
/// Returns what it prints with --json.
std::string quantized_json(const Quantized& result, const std::string& out);
/// Returns the page of --html. network: as the user named it.
std::string quantized_page(const Quantized& result, const std::string& network);

}  // namespace octet::cli
