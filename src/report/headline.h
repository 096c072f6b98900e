// What int8 cost and brought, from the rows of a report: the first thing every form of the report says.
#pragma once

#include <string>

#include "src/eval/paired.h"
#include "src/report/report.h"

namespace octet {

/// The row of that name; nullptr: none.
const Row* find_row(const Report& report, const std::string& name);

/// Whether a row is an engine's; LibTorch computes the others.
bool is_engine_row(const std::string& name);

/// The float network against the int8 network that ships. A ratio or difference is 0 when one side is unknown.
struct Headline {
  const Row* float_row = nullptr;  ///< "float"
  const Row* baseline = nullptr;   ///< "float_control", which trained as long as the int8 network; without one "float"
  const Row* int8_row = nullptr;   ///< the first engine's row; without one "qat_graph", then "ptq"
  const Row* ptq_row = nullptr;    ///< "ptq"
  bool qat = false;                ///< the int8 network was trained on after PTQ
  Paired lost;                     ///< baseline against int8; points above 0: int8 is worse
  Paired ptq_lost;                 ///< float against PTQ, likewise
  double qat_points_back = 0;      ///< 100 * (int8's score - PTQ's), of a network trained on
  double size_ratio = 0;           ///< float bytes / int8 bytes
  double speed_up = 0;             ///< int8 images/s / float images/s
  bool both() const { return float_row && int8_row; }
  bool ptq_alone() const { return ptq_row && !qat; }
};

/// The pointers point into `report`.
Headline headline(const Report& report);

/// Says "costs" or "gains" only of a difference that is not chance (Paired::told_apart): "float 91.73 % -> int8 91.70
/// %: -0.03 points of top-1, no difference that 10,000 pictures show (95 % interval -0.13 to +0.07; 14 only float has
/// right, 11 only int8)"; of pixels' labels in points of mean IoU.
/// `cause`: "quantization".
std::string difference_sentence(const Evaluation& before, const Evaluation& after, const std::string& cause);

/// That sentence of baseline and int8; and where PTQ lost something, how much and what QAT got back. None without both
/// rows.
std::vector<std::string> accuracy_sentences(const Headline& headline);

/// "; reference: the first 100" for each row that saw fewer images than the first row; "" for none.
std::string shorter_rows(const Report& report);

/// The classes' names, or their numbers where names are missing.
std::string class_label(const Report& report, size_t index);

}  // namespace octet
