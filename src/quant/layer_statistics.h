// What quantization costs a layer, as plain data: src/qat measures it (layer_statistics.h there), the report shows it.
#pragma once

#include <string>
#include <vector>

namespace octet {

struct Histogram {
  float lo = 0, hi = 0;        ///< outer edges of the first and the last bin
  std::vector<double> counts;  ///< equally wide bins; empty: none was taken
  long not_finite = 0;         ///< NaN and infinite values, which no bin counts
};

struct LayerStatistics {
  std::string name, op;
  std::string qparams;       ///< "u8 scale 0.0123 zero 7"; u4: unsigned codes of four bits
  std::string weight_codes;  ///< "-7..7"; empty without weights
  /// 10 log10(E[x^2] / E[(x - y)^2]): the float network's output x, the simulation's y; infinite: x is y; NaN: x is not
  /// finite
  double sqnr_db = 0;
  double weight_sqnr_db = 0;  ///< the same of the weights; meaningful when `weights` holds counts
  Histogram weights, activations;
};

}  // namespace octet
