// What `octet train` does, from a recipe to a report, as stages that other commands reuse.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/common/interrupt.h"
#include "src/report/report.h"
#include "trainers/loop/train.h"
#include "trainers/run/run.h"

namespace octet {

/// Trains the float phase (train.epochs 0: keeps the weights as they are) and writes float.safetensors.
void train_float(const Run& run, Weights& weights, bool resume);

/// Trains the QAT phase from calibrated qparams; nothing with qat.epochs 0. `stop` is asked after each step.
void train_qat(const Run& run, QuantizedModel& model, bool resume, const std::function<bool()>& stop = interrupted);

/// The float network trained on for the epochs of QAT, from float.safetensors: the optimizer, pictures and graph of QAT
/// without fake quantization. Writes float_control.safetensors.
Weights train_float_control(const Run& run, bool resume, const std::function<bool()>& stop = interrupted);

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

/// The whole job: float, PTQ, QAT, float control, convert, evaluate, compare, report; every file of the run directory.
/// Throws Error(promise) after writing the report when the engines' codes differ from the QAT graph's. Several
/// ranks train, measure and compare together; the first alone reports: the others return nothing.
std::optional<Report> train(const Recipe& recipe, const RunDirectory& directory, const RunStart& start);

}  // namespace octet
