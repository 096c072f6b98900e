#pragma once

#include <optional>
#include <string>

#include "tools/octet/commands.h"

namespace octet::cli {

struct OnnxExport {
  std::string file;  ///< to write; empty: no ONNX is asked for
  bool float_network = false;
  std::optional<std::string> profile;  ///< without: onnxruntime
  int opset = 13;
};

/// Writes the network of a run directory or checkpoint as ONNX.
ExitCode export_onnx(const Common& common, const std::string& target, const OnnxExport& options);

/// --set where no recipe is read: Error(usage) that begins with `why`.
void require_no_set(const Common& common, const std::string& why);

}  // namespace octet::cli
