// SPDX-License-Identifier: Apache-2.0
// What is shown of a network that was quantized by images: for people, as JSON, and as a page.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "src/base/text.h"
#include "trainers/run/quantize.h"

namespace octet::cli {

/// What the tables' column "lost" is.
inline constexpr const char* kLegend =
    "lost: noise / (noise + signal) of an output, mean over images; signal: what differs from the output's median";

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
