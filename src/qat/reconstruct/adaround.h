// AdaRound (Nagel et al., "Up or Down? Adaptive Rounding for Post-Training Quantization", arXiv 2004.10568): each
// weight is rounded up or down so that what its layer gives is nearest to the float network's, not so that the weight
// is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/qat/quantized_model.h"

namespace octet {

struct AdaRoundOptions {
  int steps = 10000;    ///< of Adam, for each layer
  int batch_size = 32;  ///< pictures a step
  uint64_t seed = 1;
};

/// What rounding does to a layer's output: mean over pictures and pixels of the squared error, summed over channels.
struct RoundedLayer {
  std::string name;
  double nearest = 0, rounded = 0;
  int64_t weights = 0, moved = 0;  ///< moved: whose code is another than by rounding to nearest, by 1
};

/// Layer by layer, in order, with the weights' scales and the edges' qparams as they are: pictures reach a layer
/// through the quantized network whose earlier layers are rounded already, and what it should give comes from the float
/// one. A layer's activation counts where no residual comes before it. The loss is the paper's (its equations 21 to
/// 25): h(V) of a stretched sigmoid, pushed to 0 and 1 by a regularizer whose power falls from 20 to 2 after a fifth of
/// the steps; but its two parts are measured in the error of rounding to nearest and in all weights, so that they keep
/// their balance in layers of every size. Each channel's largest weight and what lies beyond the range stay, for they
/// carry the scale. A layer that is not better for it keeps what it has. The weights, in place, come to lie on their
/// codes' values, so that rounding to nearest gives these codes. x: normalized float [N, C, H, W] where the weights
/// are; a layer's inputs and outputs of all of them are held in memory. `done` sees each layer.
void adaround(QuantizedModel& model, const at::Tensor& x, const AdaRoundOptions& options,
              const std::function<void(const RoundedLayer&)>& done);

}  // namespace octet
