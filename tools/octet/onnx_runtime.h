// ONNX Runtime as a Program, in a Python that has it: octet compare holds its codes against the engines'.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/engine/engine.h"
#include "src/onnx/shown_codes.h"

namespace octet::cli {

/// Names for --against: as it runs by itself, with nodes fused to int8 kernels; and every node alone, as ONNX defines
/// it.
inline constexpr const char* kOnnxRuntime = "onnxruntime";
inline constexpr const char* kOnnxRuntimeUnfused = "onnxruntime_unfused";

/// Runs `model` of `graph` in the Python that OCTET_PYTHON names (default: python3). Taps show the nodes of
/// shown_by(). Throws Error(data) that says what is missing and the cure, or why the model is refused.
std::unique_ptr<Program> start_onnx_runtime(const Int8Graph& graph, const ShownCodes& model, const std::string& name,
                                            int threads);

/// By node, whether the model has its values.
std::vector<bool> shown_by(const ShownCodes& model);

}  // namespace octet::cli
