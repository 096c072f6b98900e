// SPDX-License-Identifier: Apache-2.0
// The results of a report in a few figures: what int8 costs and gains. Every form of the report begins with them.
#pragma once

#include <string>
#include <vector>

#include "src/report/html.h"
#include "src/report/report.h"

namespace octet {

/// Returns the row of that name, or nullptr.
const Row* find_row(const Report& report, const std::string& name);

/// Returns whether a row of that name is an engine's; LibTorch computes the others.
bool is_engine_row(const std::string& name);

/// Returns the row of the int8 network that ships: the first engine's; without one "qat_graph", then "ptq".
const Row* int8_row(const Report& report);

/// The float network compared with the int8 network that ships. Ratios and differences are 0 when a side is unknown.
struct Headline : Differences {
  const Row* float_row = nullptr;  ///< "float"
  const Row* baseline = nullptr;   ///< "float_control", trained for as many epochs as int8; without one "float"
  const Row* int8_row = nullptr;   ///< int8_row()
  const Row* ptq_row = nullptr;    ///< "ptq"
  bool qat = false;                ///< the int8 network was trained after PTQ
  double size_ratio = 0;           ///< float bytes / int8 bytes
  double speed_up = 0;             ///< int8 images/s / float images/s
  bool both() const { return float_row && int8_row; }
  bool ptq_alone() const { return ptq_row && !qat; }
};

/// The pointers of the result point into `report`.
Headline headline(const Report& report);

/// Returns how much the rows of a report differ, computed anew.
Differences differences(const Report& report);

/// Describes the difference between two networks: "float 91.73 % -> int8 91.70 %: -0.03 points of top-1, no difference
/// that 10,000 pictures show (95 % interval -0.13 to +0.07; 14 only float has right, 11 only int8)". Only if the
/// difference is significant (Paired::told_apart) it says that `cause` ("quantization") "costs" or "gains" points.
/// Segmentations are described in points of mean IoU.
/// lost: paired(before, after).
std::string difference_sentence(const Evaluation& before, const Evaluation& after, const Paired& lost,
                                const std::string& cause);

/// Returns difference_sentence() of baseline and int8 and, where PTQ lost something, how much that was and how much QAT
/// got back. Returns nothing without a float and an int8 row.
std::vector<std::string> accuracy_sentences(const Headline& headline);

/// Returns "; reference: the first 100" for each row that saw fewer images than the first row; "" if there is none.
std::string shorter_rows(const Report& report);

/// Returns the name of a class, or its number where names are missing.
std::string class_label(const Report& report, size_t index);

/// Returns cards of what int8 costs and gains: score, differing codes, size and speed, as far as they are known.
std::vector<Card> result_cards(const Report& report);

/// Returns the score of every row as bars.
BarChart accuracy_chart(const Report& report);

}  // namespace octet
