// Which layers quantization costs the most, on the float simulation: each alone quantized, all but each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/qat/quantized_model.h"

namespace octet {

/// Logits against the float network's over the same pictures.
struct LogitsLoss {
  double sqnr_db = 0;    ///< 10 log10(E[x^2] / E[(x - y)^2]); infinite: none is lost
  double agreement = 0;  ///< share of the pictures, or of their pixels, with the same best class
};

struct ChannelLoss {
  int channel = 0;
  double sqnr_db = 0;
};

/// A node with weights or with an edge of its own.
struct LayerSensitivity {
  std::string name, op;
  int weight_bits = 0, activation_bits = 0;  ///< 0: has none
  LogitsLoss alone, all_but;                 ///< this one quantized and no other; all others and not this one
  double sqnr_db = 0;                        ///< of its output where all are quantized
  std::vector<ChannelLoss> worst;            ///< of that output's channels, the worst first
};

struct Sensitivity {
  LogitsLoss all;
  std::vector<LayerSensitivity> layers;
};

/// x: batches of normalized float [N, C, H, W] where the weights are. The float network is that of the model's weights.
/// `done` sees how many of the layers are measured.
Sensitivity sensitivity(QuantizedModel& model, const std::vector<at::Tensor>& x, size_t worst_channels,
                        const std::function<void(size_t done, size_t all)>& done);

/// By entry of `groups`: the logits with these nodes alone quantized, against the float network's.
std::vector<LogitsLoss> each_alone(QuantizedModel& model, const std::vector<at::Tensor>& x,
                                   const std::vector<std::vector<int>>& groups, const std::function<void()>& done);

/// The logits with all of the network quantized, against the float network's.
LogitsLoss all_quantized(QuantizedModel& model, const std::vector<at::Tensor>& x);

}  // namespace octet
