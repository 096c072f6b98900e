// SPDX-License-Identifier: Apache-2.0
// Training's forward pass on the codes that engines compute: the engine's kernels multiply int8 codes, node after node,
// and one byte a value is kept for the backward pass. Only with fixed BatchNorm and fixed ranges, on a GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "src/train/model/model.h"

namespace octet {

/// A network prepared for a number of images.
struct Int8Network;

/// The networks of a model, by number of images.
class Int8Networks {
 public:
  /// edges: returns the qparams of all edges as they are now; may wait for the GPU.
  explicit Int8Networks(std::function<std::vector<QParams>()> edges) : edges_(std::move(edges)) {}

  /// Returns walk()'s outputs, in float32, for x float [N, C, H, W]. Every code is that of the engines. `look`, if
  /// given, sees every node's output as float32. `hooks` quantize, without observing. The first call with a number of
  /// images prepares the network, which takes seconds and waits for the GPU, and so does the first after ranges have
  /// changed; `prepared`, the memory of `weights` and what `hooks` call must last until the last backward pass, and
  /// weights and scales stay in their memory. Later calls only launch work. Throws Error(promise) naming the node for
  /// which a kernel or memory is missing.
  ///
  /// Gradients are those of the float operators at the values of the codes, in the type of the quantized weights. The
  /// gradient of an operator's edge passes where the simulation lets it pass. A layer's sums are gone, so there the
  /// code decides: the gradient passes strictly between the lowest and the highest code that the layer may write. In
  /// the simulation it also passes where a value that a ReLU keeps rounds to zero, or one rounds to the last code
  /// without lying beyond it.
  using Look = std::function<void(int node, const at::Tensor& output)>;
  at::Tensor forward(const Prepared& prepared, const Weights& weights, const WalkHooks& hooks, const at::Tensor& x,
                     const Look& look);

  /// Says that ranges may have changed. What was prepared stays, since a recorded CUDA graph may read its memory.
  void ranges_may_differ() { stale_ = true; }

  /// Returns a number that changes with the ranges, which are part of what forward() launches. A recording made under
  /// another number must not be replayed: the next forward() frees what it reads. Waits for the GPU only after
  /// ranges_may_differ().
  int version();

  void clear() { networks_.clear(); }  ///< to be called when the memory of weights or scales has changed

 private:
  std::function<std::vector<QParams>()> edges_;
  std::map<int64_t, std::shared_ptr<const Int8Network>> networks_;  ///< of version made_, by number of images
  std::vector<QParams> qparams_;                                    ///< as of version_
  bool stale_ = true;
  int version_ = 0, made_ = 0;
};

inline int Int8Networks::version() {
  if (!stale_) return version_;
  std::vector<QParams> now = edges_();
  if (now != qparams_) ++version_;
  qparams_ = std::move(now);
  stale_ = false;
  return version_;
}

#if !OCTET_CUDA
inline at::Tensor Int8Networks::forward(const Prepared&, const Weights&, const WalkHooks&, const at::Tensor& x,
                                        const Look&) {
  throw no_cuda(x.device());
}
#endif

}  // namespace octet
