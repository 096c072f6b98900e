// SPDX-License-Identifier: Apache-2.0
// What quantization costs each layer and the logits, measured on the float simulation: for `octet analyze`, the search
// of bit widths, and the report.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/quant/layer_statistics.h"
#include "src/train/qat/quantized_model.h"

namespace octet {

/// Logits compared with the float network's over the same images.
struct LogitsLoss {
  /// 10 log10(E[x^2] / E[(x - y)^2]); infinite: they are equal. Of several outputs -10 log10 of the mean of their noise
  /// over their signal: each counts alike, whatever its size.
  double sqnr_db = 0;
  /// Share of the images, or of their pixels, with the same best class; of several outputs the mean of those that have
  /// more than one channel.
  double agreement = 0;
};

struct ChannelLoss {
  int channel = 0;
  double sqnr_db = 0;
};

/// A node with weights or with an edge of its own.
struct LayerSensitivity {
  std::string name, op;
  int weight_bits = 0, activation_bits = 0;  ///< 0: it has none
  LogitsLoss alone, all_but;                 ///< with this node alone quantized; with all others quantized
  double sqnr_db = 0;                        ///< of its output, with all nodes quantized
  std::vector<ChannelLoss> worst;            ///< of that output's channels, the worst first
};

struct Sensitivity {
  LogitsLoss all;
  std::vector<LayerSensitivity> layers;
};

/// Measures every layer. x: batches of normalized float [N, C, H, W] where the weights are. The float network has the
/// model's weights. `done` sees how many of all layers are measured.
Sensitivity sensitivity(QuantizedModel& model, const std::vector<at::Tensor>& x, size_t worst_channels,
                        const std::function<void(size_t done, size_t all)>& done);

/// Returns for each entry of `groups` the loss with those nodes alone quantized.
std::vector<LogitsLoss> each_alone(QuantizedModel& model, const std::vector<at::Tensor>& x,
                                   const std::vector<std::vector<int>>& groups, const std::function<void()>& done);

/// Returns the loss with the whole network quantized.
LogitsLoss all_quantized(QuantizedModel& model, const std::vector<at::Tensor>& x);

/// Returns for the report one entry for each node of the fused graph. Its sqnr_db compares the float network's output
/// with the simulation's, and so shows how noise accumulates towards the logits. x: normalized float [N, C, H, W] where
/// the weights are, a few dozen images.
std::vector<LayerStatistics> layer_statistics(const QuantizedModel& model, const at::Tensor& x);

}  // namespace octet
