#pragma once

#include <string>
#include <vector>

#include "src/eval/compare.h"
#include "tools/octet/measured_run.h"

namespace octet::cli {

/// Appends the engines' programs, those that promise equal codes first: what stands first the others are held against.
void add_engines(const Int8Graph& graph, std::vector<std::string> engines, const CompileOptions& options,
                 std::vector<OwnedProgram>& programs);

/// Engines (default: cpu) and the runtimes of `against`, which promise nothing. options.run: a run directory, whose
/// test images are compared, or a checkpoint or quantized .onnx file, with random pictures.
Comparison compare_against(const Common& common, const MeasureOptions& options,
                           const std::vector<std::string>& against);

}  // namespace octet::cli
