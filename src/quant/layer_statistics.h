// SPDX-License-Identifier: Apache-2.0
// What quantization costs each layer, as plain data: src/train/repair/quantization_noise.h measures it, and
// the report shows it.
#pragma once

#include <string>
#include <vector>

namespace octet {

/// Counts of values in bins of equal width.
struct Histogram {
  float lo = 0, hi = 0;        ///< outer edges of the first and the last bin
  std::vector<double> counts;  ///< of the bins; empty: no histogram was taken
  long not_finite = 0;         ///< number of NaN and infinite values, which no bin counts
};

/// How a layer's output and weights change when they are quantized.
struct LayerStatistics {
  std::string name, op;
  std::string qparams;       ///< "u8 scale 0.0123 zero 7"; u4: unsigned codes of four bits
  std::string weight_codes;  ///< "-7..7"; empty without weights
  /// Signal to quantization noise, 10 log10(E[x^2] / E[(x - y)^2]) with the float network's output x and the quantized
  /// simulation's y. Infinite where they are equal, NaN where x is not finite.
  double sqnr_db = 0;
  double weight_sqnr_db = 0;  ///< of the weights; meaningful when `weights` holds counts
  Histogram weights, activations;
};

}  // namespace octet
