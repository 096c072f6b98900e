#pragma once

#include <string>
#include <vector>

#include "tools/octet/commands.h"

namespace octet::cli {

/// Prints the network of an ONNX file as it would be imported, or why it is not. `outputs`: as model.outputs has them;
/// `image_size`: as import_onnx() has it.
ExitCode inspect_onnx(const Common& common, const std::string& path, const std::vector<std::string>& outputs,
                      int image_size);

}  // namespace octet::cli
