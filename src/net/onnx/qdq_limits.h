// SPDX-License-Identifier: Apache-2.0
// Where the QDQ form ends: nodes that it cannot express, which are refused before they are written, and biases of int8
// runtimes. A QDQ file may give biases in float32, but ONNX Runtime and others add them to int32 sums, as codes of
// scale input scale * weight scale. These saturate where weights are far smaller than their bias, as weight decay makes
// them in a channel that is nearly dead.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/quantize.h"
#include "src/net/int8_graph.h"
#include "src/net/onnx/onnx.h"

namespace octet {

/// Throws Error(usage) naming the node if its multipliers are not the ratios of its scales, its table is not that of
/// its function, or the profile does not take its codes.
void check_expressible(const Int8Graph& graph, const Int8Node& node, OnnxProfile profile);

/// Returns the int32 code of a bias, rounded half to even and saturated.
int32_t int32_bias(double bias, double scale);

/// Returns a weight scale with which the bias is about 2^30 int32 codes, so that as many are left for the sum.
float scale_for_bias(double bias, double x_scale);

/// The biases of one layer: makes them fit int32, and finds what int8 runtimes will compute with them.
class Int32Biases {
 public:
  /// Takes the next output channel. Its weights are codes * scale, `x` is for the layer's input, `y_scale` is the scale
  /// of its output. If the int32 bias would saturate or make the sum overflow, raises the scale and rounds the codes
  /// again; else changes nothing.
  void fit(std::span<int8_t> codes, float& scale, float bias, const QParams& x, double y_scale);

  /// Returns for people which scales were raised, and which biases as int32 differ by more than a tenth of an output's
  /// code.
  std::vector<std::string> notes(const std::string& layer) const;

 private:
  int channels_ = 0, raised_ = 0, first_raised_ = 0, worst_ = 0;
  double moved_ = 0;  ///< the most that raised scales move an output, in codes
  double off_ = 0;    ///< the most that an int32 bias is away from the bias, in codes
};

}  // namespace octet
