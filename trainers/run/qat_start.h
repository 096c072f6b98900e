// SPDX-License-Identifier: Apache-2.0
// How QAT begins: whether the ranges of activations stay, follow the data or learn, where those that move begin, and
// from which step on BatchNorm's statistics stay.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/quant/calibrate.h"
#include "src/train/qat/quantized_model.h"
#include "trainers/run/run.h"

namespace octet {

struct QatStart {
  EdgeScales scales = EdgeScales::fixed;
  double freeze_batch_norm = kUsualFreeze;  ///< share of the steps after which BatchNorm's statistics stay
  bool froze = false;                       ///< auto chose 0, since the calibrated ranges fit those statistics alone
  bool stale = false;                       ///< those statistics are not those of the images, nor are calibrated ranges
  bool ruined = false;                      ///< it did so since statistics that follow had ruined the training
  std::vector<std::string> notes;           ///< for the report: what auto chose, and why
};

/// Returns quant.scales and qat.freeze_batch_norm or, where the recipe leaves them to octet, what suits the model, and
/// says why. Of auto, ranges that follow begin at those of the values that training sees; ranges that learn do so where
/// a batch loses too much with the calibrated ones, and less with those. model: as calibrated, if it was; lost: the
/// share of the outputs that it then loses, if that is known; kept: what was chosen when a training that goes on began.
QatStart start_qat(const Run& run, QuantizedModel& model, std::optional<double> lost,
                   const std::optional<QatStart>& kept = std::nullopt);

/// Whether octet may choose that BatchNorm's statistics, and the ranges that were calibrated with them, stay from QAT's
/// first step on.
bool may_keep_statistics(const Run& run, const QuantizedModel& model);

/// Chooses that, with a note. why: how the training was ruined that they did not stay in.
void keep_statistics(const Run& run, QatStart& start, const std::string& why);

/// Reads and writes what start_qat() chose in a run's directory: measured again, a number near its threshold could
/// choose otherwise halfway. Empty: the directory has none.
std::optional<QatStart> kept_qat_start(const RunDirectory& directory);
void keep_qat_start(const RunDirectory& directory, const QatStart& start);

}  // namespace octet
