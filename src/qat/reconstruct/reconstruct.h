// Rounding that is learned: each weight goes up or down so that what its layer, or its block, gives is nearest to the
// float network's, not so that the weight is. Layers: AdaRound (Nagel et al., "Up or Down? Adaptive Rounding for
// Post-Training Quantization", arXiv 2004.10568). Blocks: BRECQ (Li et al., arXiv 2102.05426), with the plain squared
// error; with plan.drop by QDrop (Wei et al., arXiv 2203.05740).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "src/qat/quantized_model.h"
#include "src/qat/reconstruct/steps.h"

namespace octet {

/// What rounding does to the output of a layer or block: mean over pictures and pixels of the squared error, summed
/// over channels.
struct Reconstructed {
  std::string name;  ///< of the layer; of the block's last
  double nearest = 0, rounded = 0;
  int64_t weights = 0, moved = 0;  ///< moved: whose code is another than by rounding to nearest, by 1
};

/// Unit by unit (src/qat/reconstruct/piece.h), in order, with the weights' scales and the edges' qparams as they are:
/// pictures reach a unit through the quantized network whose earlier units are rounded already, and what it should give
/// comes from the float one. The loss is AdaRound's (its equations 21 to 25): h(V) of a stretched sigmoid, pushed to 0
/// and 1 by a regularizer whose power falls from 20 to 2 after a fifth of the steps; but its two parts are measured in
/// the error of rounding to nearest and in all weights, so that they keep their balance in units of every size. A unit
/// that is not better for it keeps what it has. The weights, in place, come to lie on their codes' values, so that
/// rounding to nearest gives these codes. x: normalized float [N, C, H, W] where the weights are; a unit's inputs and
/// outputs of all of them are held in memory. With `plan.drop` (blocks only) a step takes that share of a block's input
/// from the float network, and of its inner activations as they are before quantization: codes that fit only how
/// exactly activations are rounded on these pictures are not learned. On a GPU steps are recorded and replayed: the
/// current stream is not the default one; two runs give the same bits. `done` sees each unit; `step`, called
/// before each step of one, may throw and so leave the unit as it was.
void reconstruct(
    QuantizedModel& model, const at::Tensor& x, bool blocks, const StepPlan& plan,
    const std::function<void(const Reconstructed&)>& done, const std::function<void()>& step = [] {});

}  // namespace octet
