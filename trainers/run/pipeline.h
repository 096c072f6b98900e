// SPDX-License-Identifier: Apache-2.0
// What `octet train` does, from a recipe to a report, in stages that other commands reuse.
#pragma once

#include <functional>
#include <optional>

#include "src/base/progress.h"
#include "src/report/report.h"
#include "trainers/loop/step.h"
#include "trainers/loop/train.h"
#include "trainers/run/qat_start.h"
#include "trainers/run/run.h"

namespace octet {

/// Trains the float phase, unless train.epochs is 0, and writes float.safetensors. stop: asked after each step. Sets
/// run.float_rate to the rate that it trained with. Returns what the report says of that, or "".
std::string train_float(Run& run, Weights& weights, bool resume, const std::function<bool()>& stop = interrupted);

/// Returns the float network as the teacher that the recipe's section qat asks for. weights: the calibrated model's,
/// which have other biases than float.safetensors where the recipe corrects those.
Teacher float_teacher(const Run& run, const Weights& weights);

/// Trains the QAT phase from calibrated quantization parameters; does nothing if qat.epochs is 0. stop: asked after
/// each step. lost: CalibratedRanges::lost. Sets run.qat_share to the share of its own rate that it trained with.
/// Returns how it began.
QatStart train_qat(Run& run, QuantizedModel& model, bool resume, const std::function<bool()>& stop = interrupted,
                   std::optional<double> lost = std::nullopt);

/// Trains the float control: float.safetensors trained for as many epochs as QAT, with QAT's optimizer, images and
/// graph but without fake quantization. BatchNorm's statistics that auto keeps for the calibrated ranges' sake alone
/// are live here, as in any float training: a network that explodes may be ruined without, and int8 would look better
/// than it is. Writes float_control.safetensors and returns its weights.
Weights train_float_control(const Run& run, bool resume, const std::function<bool()>& stop = interrupted);

/// Does the whole job: float, PTQ, QAT, float control, convert, evaluate, compare, report; writes every file of the run
/// directory. Several ranks train, measure and compare together; the first alone returns a report. Throws
/// Error(promise) after writing the report if the engines' codes differ from the QAT graph's, or if a constant does not
/// follow from what was trained.
std::optional<Report> train(const Recipe& recipe, const RunDirectory& directory, const RunStart& start);

}  // namespace octet
