#pragma once

#include <string>

#include "tools/octet/commands.h"

namespace octet::cli {

struct OnnxExport {
  std::string file;  ///< to write; empty: no ONNX is asked for
  bool float_network = false;
  std::string profile = "onnxruntime";
  int opset = 13;
};

/// Writes the network of a run directory or checkpoint as ONNX.
ExitCode export_onnx(const Common& common, const std::string& target, const OnnxExport& options);

}  // namespace octet::cli
