// What int8 cost and brought, from the rows of a report: the first thing every form of the report says.
#pragma once

#include <string>

#include "src/eval/report.h"

namespace octet {

/// The row of that name; nullptr: none.
const Row* find_row(const Report& report, const std::string& name);

/// The float network against the int8 network that ships. A ratio or difference is 0 when one side is unknown.
struct Headline {
  const Row* float_row = nullptr;  ///< "float"
  const Row* int8_row = nullptr;   ///< the first engine's row; without one "qat_graph", then "ptq"
  double points_lost = 0;          ///< 100 * (float top-1 - int8 top-1); negative: int8 is better
  double size_ratio = 0;           ///< float bytes / int8 bytes
  double speed_up = 0;             ///< int8 images/s / float images/s
  bool both() const { return float_row && int8_row; }
};

/// The pointers point into `report`.
Headline headline(const Report& report);

/// "91.73 % -> 91.70 %: int8 costs 0.03 points of top-1"; "" without both rows.
std::string accuracy_sentence(const Headline& headline);

/// "; reference: the first 100" for each row that saw fewer images than the first row; "" for none.
std::string shorter_rows(const Report& report);

/// The classes' names, or their numbers where names are missing.
std::string class_label(const Report& report, size_t index);

}  // namespace octet
