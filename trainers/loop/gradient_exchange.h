// Gradients summed over the ranks while the backward pass that makes them goes on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "src/recipe/choices.h"
#include "trainers/ranks/ranks.h"

namespace octet {

/// Parameters lie in buckets, in the order of the forward pass. A bucket's sum begins when the last of its gradients is
/// there, and after the sums of all buckets behind it: on every rank the same sums in the same order, hence the same
/// bits. A bucket without gradients is not sent. On a GPU they run beside the backward pass, and a CUDA graph can
/// record all of it.
class GradientExchange {
 public:
  /// `parameters`: float32 leaves in the order of the forward pass. `type`: they travel and are added in it. One
  /// exchange at a time has hooks on them. `among`: the ranks that have gradients of the same parameters.
  GradientExchange(Ranks& ranks, std::vector<at::Tensor> parameters, ExchangeType type,
                   Ranks::Among among = Ranks::Among::all);
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  /// Before the backward pass; of several micro-batches', the last one's. `also`: dense tensors to be summed, too, that
  /// nobody touches until finish(). In one `mode` the same parameters get gradients in that pass in every step, and on
  /// every rank.
  void begin(int mode, const std::vector<at::Tensor>& also);
  /// After the backward pass. The gradients are then sums over all ranks, in each parameter's own memory format; those
  /// of a bucket are views of one tensor. Throws OthersLost as Ranks does, as the backward pass may have done.
  void finish();

  size_t buckets() const { return buckets_.size(); }
  size_t started_early() const { return started_early_; }  ///< buckets of the last step that did not wait for its end

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
    at::Tensor values;   // on the wire
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
  std::vector<Bucket> buckets_;                    // as their sums begin: that of the last parameters first
  std::map<int, std::vector<bool>> has_gradient_;  // by mode and slot, from the mode's first step
  std::vector<Together> also_;
  std::vector<Ranks::ExchangePointer> under_way_;
  bool in_step_ = false;
  int mode_ = 0;
  size_t next_ = 0, started_early_ = 0;  // of buckets_
};

}  // namespace octet
