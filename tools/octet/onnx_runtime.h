// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime as a Program, run by a Python that has it: octet compare compares its codes with the engines'.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/engine/engine.h"
#include "src/net/onnx/onnx.h"

namespace octet::cli {

/// The names for --against: ONNX Runtime as it is, with nodes fused to int8 kernels; and with every node run alone, as
/// ONNX defines it.
inline constexpr const char* kOnnxRuntime = "onnxruntime";
inline constexpr const char* kOnnxRuntimeUnfused = "onnxruntime_unfused";

/// Starts the Python that OCTET_PYTHON names (default: python3) to run `model`, the ONNX file of `graph`. Taps show the
/// nodes of shown_by(). Throws Error(data) that says what is missing and the cure, or why the model is refused.
std::unique_ptr<Program> start_onnx_runtime(const Int8Graph& graph, const ShownCodes& model, const std::string& name,
                                            int threads);

/// Returns for each node whether the model outputs its values.
std::vector<bool> shown_by(const ShownCodes& model);

}  // namespace octet::cli
