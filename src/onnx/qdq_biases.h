// Biases as int8 runtimes have them. A QDQ file may give them in float32, but ONNX Runtime and others add them to int32
// sums: as int32 codes of scale input scale * weight scale, which saturate where weights are far smaller than their
// bias, as weight decay leaves them in a channel that is nearly dead.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/quantize.h"

namespace octet {

/// The int32 code of a bias: to the nearest, half to even, saturated.
int32_t int32_bias(double bias, double scale);

/// A weight scale that gives a bias about 2^30 int32 codes, which leaves as many to the sum.
float scale_for_bias(double bias, double x_scale);

/// The biases of one layer: makes their room, and finds with integer arithmetic what int8 runtimes will make of them.
class Int32Biases {
 public:
  /// The next output channel: its weights are codes * scale, `x` are the codes of the layer's input, `y_scale` is the
  /// scale of its output codes. Where the int32 bias would saturate, or make the sum overflow, the scale is raised and
  /// the codes are rounded again; any other channel stays as it is.
  void fit(std::span<int8_t> codes, float& scale, float bias, const QParams& x, double y_scale);

  /// For people: which scales were raised, and which biases are more than a tenth of an output's code off as int32.
  std::vector<std::string> notes(const std::string& layer) const;

 private:
  int channels_ = 0, raised_ = 0, first_raised_ = 0, worst_ = 0;
  double moved_ = 0;  ///< the most that raised scales move an output, in codes
  double off_ = 0;    ///< the most that an int32 bias is away from the bias, in codes
};

}  // namespace octet
