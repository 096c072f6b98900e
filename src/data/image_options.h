// SPDX-License-Identifier: Apache-2.0
// How images become a network's input, as a user says it where no recipe or checkpoint does: a preset, and what differs
// from it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/net/int8_graph.h"

namespace octet {

struct Shape;

struct ImageOptions {
  std::string preset, fit, order, orientation;  ///< "": not given
  std::vector<double> mean, std;
  std::optional<double> scale;  ///< of the values that mean and std are of: 1, or 255 for pixels as they are
  std::optional<int> resize;

  /// Returns the option that is given, "--preset", the first of several; "" if none is.
  std::string first_given() const;
};

/// Returns the preprocessing for an input of that shape. Throws Error(usage) for options that say too little, and for
/// those that contradict each other or the input.
Preprocessing preprocessing_of(const ImageOptions& options, const Shape& input);

/// Returns the kind of head that detectors of the preset have; none for other presets.
std::optional<BoxHeadKind> box_head_of(const ImageOptions& options);

}  // namespace octet
