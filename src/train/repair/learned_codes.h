// SPDX-License-Identifier: Apache-2.0
// Codes of weights that are learned after training, without labels: layer by layer or block by block, so that their
// outputs are nearest to the float network's (reconstruct.cpp), then in the whole network, into which the float network
// is distilled (distill.cpp). The first looks at one unit at a time; the second reduces what the errors of all cause
// together.
//
// Learned rounding: each weight goes up or down so that the output of its layer or block, not the weight, is nearest to
// the float network's. Layers: AdaRound (Nagel et al., "Up or Down? Adaptive Rounding for Post-Training Quantization",
// arXiv 2004.10568). Blocks: BRECQ (Li et al., arXiv 2102.05426) with the plain squared error; with plan.drop by QDrop
// (Wei et al., arXiv 2203.05740).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/train/model/model.h"
#include "src/train/qat/quantized_model.h"
#include "src/train/repair/steps.h"

namespace octet {

/// Layers whose weights are rounded together, and the part of the network, between two cut points, that they are in.
struct RoundingUnit {
  GraphPart part;
  std::vector<int> layers;
};

/// Returns the units in the network's order: every conv2d and linear alone (AdaRound), or with `blocks` (BRECQ) all of
/// a part together, which is a residual block or other branches that join again; in a chain each layer alone. Throws
/// Error(usage) for blocks of a network with several outputs.
std::vector<RoundingUnit> rounding_units(const Graph& graph, bool blocks);

/// A unit as functions of the output x [N, C, H, W] of node `source`.
struct Piece {
  int source = 0;
  /// In the quantized network, with these weights for its layers, which may require gradients.
  std::function<at::Tensor(const at::Tensor& x, const std::vector<at::Tensor>& weights)> quantized;
  std::function<at::Tensor(const at::Tensor& x)> wanted;  ///< in the float network
  /// Blocks only: as `quantized`, but edges inside drop their quantization; x has dropped it already.
  std::function<at::Tensor(const at::Tensor& x, const std::vector<at::Tensor>& weights, const Drop& drop)> dropping;
  int channels = 0;  ///< of the results
};

/// Returns a layer up to its residual if it has one, else with its activation. `floats` must outlive the result.
Piece lone_layer(const Graph& graph, int layer, const Weights& floats);

/// Returns the whole part of a unit with its edges quantized as deployed, but not its last one: rounding cannot change
/// that error. `model`, whose scales must stay, and `floats` must outlive the result.
Piece block(QuantizedModel& model, const RoundingUnit& unit, const Weights& floats);

/// The error of a unit's output by rounding to nearest and by the learned rounding: squared, mean over images and
/// pixels, summed over channels.
struct Reconstructed {
  std::string name;  ///< of the layer, or of the block's last layer
  double nearest = 0, rounded = 0;
  int64_t weights = 0, moved = 0;  ///< moved: weights whose code is not the nearest, but the one next to it
};

/// Rounds unit by unit, in order; the weights' scales and the edges' qparams stay. x: normalized float [N, C, H, W]
/// where the weights are; its images reach a unit through the quantized network, earlier units being rounded, and are
/// held in memory with a unit's inputs and outputs. The loss is AdaRound's (equations 21 to 25), but its two terms are
/// relative to the error of rounding to nearest and to the number of weights, so that their balance does not depend on
/// a unit's size. A unit that learned nothing better keeps the nearest codes. Weights change in place to the values of
/// their codes, so that rounding to nearest gives these codes.
///
/// With `plan.drop` (blocks only) a step takes that share of a block's input from the float network, and leaves that
/// share of its inner activations unquantized: then codes cannot fit only the way in which these images are rounded. On
/// a GPU steps are recorded and replayed, so that the current stream must not be the default one; two runs give the
/// same bits. `done` sees each unit. `step`, called before each step, may throw, which leaves the current unit as it
/// was.
void reconstruct(
    QuantizedModel& model, const at::Tensor& x, bool blocks, const StepPlan& plan,
    const std::function<void(const Reconstructed&)>& done, const std::function<void()>& step = [] {});

// Distillation.

/// Returns T^2 KL(softmax(taught / T) || softmax(logits / T)), mean over the batch, of logits [N, classes] (Hinton et
/// al., "Distilling the Knowledge in a Neural Network", arXiv 1503.02531), or over pixels of [N, classes, pixels].
at::Tensor distillation_loss(const at::Tensor& logits, const at::Tensor& taught, double temperature);

struct DistillPlan {
  int steps = 1000;    ///< of Adam
  double rate = 1e-3;  ///< for biases and, in steps of the grid, codes; a tenth of it for the logarithms of scales
  double temperature = 4;
  bool tf32 = false;  ///< on a GPU steps use TF32 (src/train/model/device.h)
};

struct Distilled {
  double first = 0, last = 0;      ///< mean loss of the first and of the last tenth of the steps
  int64_t weights = 0, moved = 0;  ///< moved: weights with another code than before
};

/// Minimizes distillation_loss() over the images that `next` returns, float [N, C, H, W], the same N each time.
/// `floats` are the weights before they were rounded, those of the teacher. Codes, scales of weights and biases are
/// learned; the edges' qparams stay, and so does the last layer, which would learn the classes of these images. Rates
/// rise over the first twentieth of the steps and then fall to 0 along half a cosine. Changes the model's weights in
/// place; they stay on grids whose scales the model finds again.
Distilled distill(QuantizedModel& model, const Weights& floats, const std::function<at::Tensor()>& next,
                  const DistillPlan& plan);

/// Throws Error(usage) for a network with several outputs, or with one layer.
void require_teachable(const Graph& fused);

}  // namespace octet
