// SPDX-License-Identifier: Apache-2.0
// How a trained network is measured: its programs and its engines on the images of a run, for the report.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "src/engine/engine.h"
#include "src/eval/evaluate.h"
#include "src/recipe/run.h"
#include "src/report/report.h"
#include "trainers/run/qat_start.h"
#include "trainers/run/run.h"

namespace octet {

using EngineNames = std::vector<std::string>;

/// Returns the engines of a run; call it once. A run on the CPU of a machine with a GPU does not evaluate on the GPU
/// either. Throws Error(usage) for an engine that is unknown or cannot run here.
EngineNames engines_of(const Recipe& recipe, at::Device device);

/// Makes the engines refuse the network before training instead of after it. Throws as Engine::check() does.
void require_engines_take_it(const Run& run, const EngineNames& engines);

/// Measures accuracy and speed of a program on images of run.data. Returns a row of the report (differing: -1). file:
/// its size is the row's bytes; "": none.
Row measure(const Run& run, const std::string& name, Program& program, const EvaluationSet& images,
            const std::string& file = "");

/// Returns the model as an Int8Graph with class names, preprocessing and recipe hash.
Int8Graph to_int8(const Run& run, const QuantizedModel& model);

/// Compiles `graph` for batches of evaluate.batch_size, after LibTorch gave back memory that it no longer uses.
std::unique_ptr<Program> compile_engine(const Run& run, const std::string& engine, const Int8Graph& graph);

/// Returns the programs that engines are compared with. The first is the QAT graph, whose codes must be equal. The
/// others are only counted, over the first kCountedImages: "simulation" (in float32) and, after QAT, the forward pass
/// as it was trained in qat.precision, e.g. "trained_bf16".
std::vector<OwnedProgram> trained_programs(const Run& run, const QuantizedModel& model);
inline constexpr long kCountedImages = 1000;  ///< enough for shares of differing codes; these programs are slow

/// Compares the constants of `graph`, an int8 network of this run, with a second derivation from the model.
DerivedConstants derived_constants(const Run& run, const QuantizedModel& model, const Int8Graph& graph);

/// Returns the report of a trained run, all but its duration: on the test images the rows of the phases' networks,
/// `ptq` and the engines (nothing is chosen any more), then layers, example images, compared codes and constants
/// derived again. Writes the int8 checkpoint.
Report measure_and_report(const Run& run, const QuantizedModel& model, Program& ptq, const EngineNames& engine_names);

/// Returns why a quantized network answers worse than its float network (diagnosis.cpp): in a sentence or two which
/// layers lose most of the outputs, each quantized alone, and what is wrong with their ranges or weights; what the
/// recipe has tried; and which of its keys, with what values, may help. Measured on a few validation images, without
/// labels, in seconds. model: calibrated, or trained with qat.epochs; start: what train_qat() returned.
/// What fails, and Ctrl-C, is said in the place of all that: it must not cost what was measured before.
std::string diagnose(const Run& run, QuantizedModel& model, const QatStart& start = {});

// The test images that a report shows of a network of detection or segmentation (worst_images.cpp): those on which
// int8 loses most of what the float network has right. They are found in the evaluations; no network runs again.

inline constexpr size_t kShownImages = 6;

/// Returns the test images with labels on which an int8 network is furthest below the float network by AP, then those
/// on which it finds least.
std::vector<ReportBoxes> worst_boxes(const RunData& data, const Evaluation& before, const Evaluation& int8);

/// Returns the test images on which an int8 network of segmentation is furthest below the float network by mean
/// intersection over union, and of equally far ones those on which more of their pixels differ.
std::vector<ReportMasks> worst_masks(const RunData& data, const Evaluation& before, const Evaluation& int8);

}  // namespace octet
