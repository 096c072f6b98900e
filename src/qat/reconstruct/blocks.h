// Block-wise reconstruction (BRECQ; Li et al., arXiv 2102.05426) with dropped quantization (QDrop; Wei et al., arXiv
// 2203.05740): the weights of a block are rounded up or down together, so that what the block gives is nearest to the
// float network's.
#pragma once

#include <functional>
#include <vector>

#include "src/model/walk_part.h"
#include "src/qat/reconstruct/adaround.h"

namespace octet {

struct BlockOptions : AdaRoundOptions {  ///< steps: of Adam, for each block
  double drop = 0.5;                     ///< probability, value by value, of being left float in a step
};

/// Parts of the network that have weights, between neighbouring edges through which everything passes (cut_points()): a
/// residual block, or a layer by itself where nothing passes beside it.
std::vector<GraphPart> blocks_of(const Graph& graph);

/// Block by block, in order, as adaround() goes layer by layer: h(V), the regularizer and what may move are its.
/// Pictures reach a block through the quantized network whose earlier blocks are rounded already; the loss is the
/// squared error of the block's output, before that is quantized, against the float network's, in units of rounding to
/// nearest. In each step every value of the block's input and of the edges within is float with probability `drop`: the
/// input's float value is the float network's, an edge's what was to be quantized. Scales and zero points of
/// activations stay as calibrated (BRECQ learns them, too). Errors, which decide whether a block keeps its learned
/// codes, are measured with everything quantized. `done` sees each block, by the name of its last node. x: normalized
/// float [N, C, H, W] where the weights are; inputs and outputs of a block of all of them are held in memory.
void reconstruct_blocks(QuantizedModel& model, const at::Tensor& x, const BlockOptions& options,
                        const std::function<void(const RoundedLayer&)>& done);

}  // namespace octet
