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

/// The whole job: float, PTQ, QAT, float control, convert, evaluate, compare, report; every file of the run directory.
/// Throws Error(promise) after writing the report when the engines' codes differ from the QAT graph's, or a constant
/// does not follow from what was trained. Several ranks train, measure and compare together; the first alone reports:
/// the others return nothing.
std::optional<Report> train(const Recipe& recipe, const RunDirectory& directory, const RunStart& start);

}  // namespace octet
