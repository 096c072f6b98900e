#pragma once

#include <string>

#include "tools/octet/commands.h"

namespace octet::cli {

/// Prints the network of an ONNX file as it would be imported, or why it is not.
ExitCode inspect_onnx(const Common& common, const std::string& path);

}  // namespace octet::cli
