// SPDX-License-Identifier: Apache-2.0
// Training's forward pass on the codes that engines compute: the engine's kernels multiply int8 codes, node after node,
// and one byte a value is kept for the backward pass. Only with fixed BatchNorm and fixed ranges, on a GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "src/quant/plan.h"
#include "src/train/model/model.h"

namespace octet {

/// A network prepared for a number of images.
struct Int8Network;

/// The networks of a model, by number of images.
class Int8Networks {
 public:
  /// Returns walk()'s outputs, in float32, for x float [N, C, H, W]. Every code is that of the engines. `look`, if
  /// given, sees every node's output as float32. `hooks` give the quantized layers. The first call with a number of
  /// images prepares the network, which takes seconds and waits for the GPU; `prepared` and the memory of `weights`
  /// must last until clear() and the last backward pass. Later calls only launch work. Throws Error(promise) naming the
  /// node for which a kernel or memory is missing.
  ///
  /// The gradient of an edge passes straight through its quantizer where the code lies strictly between the lowest and
  /// the highest that the node may write, and is 0 at both. So it is that of activation(fake_quantize(x)), where the
  /// simulation has fake_quantize(activation(x)): of values that a ReLU keeps and that round to zero, the gradient is 0
  /// here and passes there. Otherwise gradients are those of the float operators at the values of the codes, in the
  /// type of the quantized weights.
  using Look = std::function<void(int node, const at::Tensor& output)>;
  at::Tensor forward(const Prepared& prepared, const Weights& weights,
                     const std::function<std::vector<QParams>()>& edges, const WalkHooks& hooks, const at::Tensor& x,
                     const Look& look);

  void clear() { networks_.clear(); }  ///< to be called when edges or the memory of weights have changed

 private:
  std::map<int64_t, std::shared_ptr<const Int8Network>> networks_;
};

}  // namespace octet
