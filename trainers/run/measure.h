// What a trained network is measured by: its programs and its engines, on the images of a run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/report/report.h"
#include "trainers/run/run.h"

namespace octet {

using EngineNames = std::vector<std::string>;

/// The engines of a run, asked for once. One that was told to keep off the machine's GPU does not evaluate there
/// either. Throws Error(usage) for an engine that is unknown or that cannot run here.
EngineNames engines_of(const Recipe& recipe, at::Device device);

/// What an engine refuses about the network it refuses now, not after training: throws as Engine::check() does.
void require_engines_take_it(const Run& run, const EngineNames& engines);

/// Accuracy and speed of a program as a row of the report (differing: -1), on images of run.data.
/// `file`: whose size is the row's bytes; "": none.
Row measure(const Run& run, const std::string& name, Program& program, const EvaluationSet& images,
            const std::string& file = "");

/// The model as an Int8Graph with names, preprocessing and recipe hash.
Int8Graph to_int8(const Run& run, const QuantizedModel& model);

/// `graph` on that engine, for batches of evaluate.batch_size, with the memory that LibTorch no longer uses.
std::unique_ptr<Program> compile_engine(const Run& run, const std::string& engine, const Int8Graph& graph);

/// What engines are held against, and how far it is from what was trained: first the QAT graph; then, over the first
/// kCountedImages and promising nothing, "simulation" (float32 proper) and, after QAT, the forward pass that was
/// trained in qat.precision, "trained_bf16".
std::vector<OwnedProgram> trained_programs(const Run& run, const QuantizedModel& model);
inline constexpr long kCountedImages = 1000;  ///< shares of differing codes need no more; they run at training's speed

/// The constants of `graph`, an int8 network of this run, held against a second derivation from the model.
DerivedConstants derived_constants(const Run& run, const QuantizedModel& model, const Int8Graph& graph);

/// The report of a trained run, all but its time: rows of what the phases made, `ptq` and the engines on the test
/// images (from here on nothing is chosen any more), layers, pictures, codes compared, constants derived again. Writes
/// the int8 checkpoint.
Report measure_and_report(const Run& run, const QuantizedModel& model, Program& ptq, const EngineNames& engine_names);

}  // namespace octet
