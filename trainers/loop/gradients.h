// SPDX-License-Identifier: Apache-2.0
// What happens to gradients between the backward pass and the update: they are added up over micro-batches, summed over
// the ranks while the backward pass goes on, unscaled and clipped.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/recipe/recipe.h"
#include "trainers/parallel/ranks.h"

namespace octet {

/// Sums gradients over the ranks during the backward pass. Parameters are grouped into buckets in the order of the
/// forward pass. The sum of a bucket starts when its last gradient is ready and the sums of all buckets behind it have
/// started: every rank runs the same sums in the same order, so all get the same bits. A bucket without gradients is
/// not sent. On a GPU the sums run concurrently with the backward pass, and a CUDA graph can record all of it.
class GradientExchange {
 public:
  /// parameters: float32 leaves in the order of the forward pass; only one exchange at a time can have its hooks on
  /// them. type: in which the gradients are sent and added. among: the ranks that train the same parameters.
  GradientExchange(Ranks& ranks, std::vector<at::Tensor> parameters, ExchangeType type,
                   Ranks::Among among = Ranks::Among::all);
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  /// Call it before the backward pass, with micro-batches before the last one's. also: dense tensors that are summed,
  /// too, and that nobody touches until finish(). Within one `mode` the same parameters must get gradients in every
  /// step and on every rank.
  void begin(int mode, const std::vector<at::Tensor>& also);
  /// Call it after the backward pass. The gradients then are sums over all ranks in each parameter's own memory format;
  /// those of a bucket are views of one tensor. Like the backward pass it may throw OthersLost.
  void finish();

  size_t buckets() const { return buckets_.size(); }
  size_t started_early() const { return started_early_; }  ///< buckets whose sum started before the last finish()

 private:
  class Hook;
  struct Slot {
    at::Tensor parameter;
    size_t bucket = 0;
    int64_t begin = 0;  // in the bucket
    bool ready = false;
  };
  struct Bucket {
    std::vector<size_t> slots;
    int64_t size = 0;
    size_t missing = 0;  // gradients of this step
    at::Tensor values;   // that are sent
  };
  struct Together {  // tensors of one type that are summed as one
    std::vector<at::Tensor> parts;
    at::Tensor values;
  };

  void place(const std::vector<at::Tensor>& parameters);
  void is_ready(size_t slot);
  void start(Bucket& bucket);
  void start_also(const std::vector<at::Tensor>& also);
  void take(Bucket& bucket);

  Ranks& ranks_;
  const at::ScalarType type_;
  const Ranks::Among among_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;                    // in the order of their sums: the last parameters come first
  std::map<int, std::vector<bool>> has_gradient_;  // by mode and slot, known after the mode's first step
  std::vector<Together> also_;
  std::vector<Ranks::ExchangePointer> under_way_;
  bool in_step_ = false;
  int mode_ = 0;
  size_t next_ = 0, started_early_ = 0;  // indices into buckets_
};

/// Adds up the gradients of several backward passes with one launch a pass; autograd itself launches one addition for
/// each parameter.
class GradientSums {
 public:
  explicit GradientSums(std::vector<at::Tensor> parameters);

  void take();       ///< after a backward pass: moves the gradients from the parameters into the sums
  void give_back();  ///< moves the sums to the parameters, where a further backward pass adds to them, and starts anew

 private:
  const std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> sums_;   // by parameter; undefined: no gradient yet
  std::vector<at::Tensor> added_;  // kept: their memory belongs to another lane, which would overwrite it too early
};

/// Dynamic loss scaling for fp16 (Micikevicius et al. 2018): the scale doubles after `growth_interval` good steps in a
/// row and halves after a step with an infinite or NaN gradient, which is skipped. Everything stays on the device.
/// LibTorch has the building blocks in C++, but not the class (pytorch#44710).
class GradScaler {
 public:
  explicit GradScaler(at::Device device, float initial_scale = 65536.0f, long growth_interval = 2000);

  at::Tensor scale(const at::Tensor& loss) const;
  /// Divides the gradients by the scale in place. Returns a float scalar: 1 if one of them is not finite, else 0.
  at::Tensor unscale(const std::vector<at::Tensor>& gradients) const;
  void update(const at::Tensor& found_inf);

  /// Returns the scalars "scale" (float) and "growth" (int32) themselves: copy into them to restore.
  std::map<std::string, at::Tensor> state() const { return {{"scale", scale_}, {"growth", growth_}}; }

 private:
  at::Tensor scale_, growth_;
  long growth_interval_;
};

at::Tensor joint_norm(const std::vector<at::Tensor>& gradients);  ///< L2 norm over all of them, a float scalar

/// Multiplies the gradients by min(1, max_norm / (norm + 1e-6)) in place (Pascanu et al. 2013). norm: their joint norm,
/// which may include gradients of other processes. Worked: (3, 4) of norm 5 with max_norm 1 becomes (0.6, 0.8).
void clip_gradients(const std::vector<at::Tensor>& gradients, double max_norm, const at::Tensor& norm);

}  // namespace octet
