// SPDX-License-Identifier: Apache-2.0
// A network cut into stages, one for each of several processes (parallel.stages): where it is cut, which tensors belong
// to which stage, and how a batch passes through the stages in micro-batches.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/net/graph.h"
#include "src/train/model/model.h"
#include "trainers/parallel/ranks.h"

namespace octet {

/// Returns the parts of a fused network that is cut after `layers` (parallel.stages), in their order. Throws
/// Error(usage) naming the layer if it does not exist, if the order is not the network's, or if more than one value
/// would cross the cut; these are named, too.
std::vector<GraphPart> stages_of(const Graph& graph, const std::vector<std::string>& layers);

/// Returns WalkMode::shares for micro-batches, each of which BatchNorm normalizes by itself. On a GPU this selects our
/// kernels. LibTorch would take cuDNN's, which needs all multiprocessors at once, so that neither the pass of another
/// micro-batch nor a transfer to the next stage could run concurrently. Null on the CPU.
const GatherShares* batch_norm_of_micro_batches(at::Device device);

/// The share of each batch that a rank trains on: share `share` of `shares`. A batch is shared by all ranks or, if the
/// network is cut after `layers`, by its replicas. Without ranks this process takes all of it.
struct BatchShare {
  int share = 0, shares = 1;
};
BatchShare batch_share(const Ranks* ranks, const std::vector<std::string>& layers);

/// By stage: the tensors that belong to it, in an order that is the same on every rank.
using Owned = std::vector<std::vector<at::Tensor>>;

/// Knows which stage owns each tensor of a training.
class Owners {
 public:
  Owners(const Graph& graph, const std::vector<GraphPart>& parts);

  /// Adds the tensor to its owner's list. name: of a parameter or buffer of the network, or of
  /// QuantizedModel::learned_scales(), of which every stage owns a part.
  void add(const std::string& name, const at::Tensor& tensor, Owned& owned) const;

 private:
  std::map<std::string, size_t> part_of_;  // by layer or BatchNorm
  std::vector<int64_t> edges_, channels_;  // where the scales of each part begin, and where all end
};

/// Copies the tensors of every stage from the rank that trained it to all ranks.
void take_from_owners(Ranks& ranks, const Owned& owned);

/// The forward and backward pass of a batch through the stages: one forward and one backward in turns once the stages
/// are filled (1F1B: Narayanan et al. 2021, arXiv 2104.04473). Each stage starts two micro-batches more than 1F1B
/// needs: one so that transfers overlap with computation, and one so that on a GPU a forward pass runs concurrently
/// with the backward pass of another micro-batch. Every stage takes its micro-batches in ascending order, forward and
/// backward, so gradients add up as in a single process with the same micro-batches.
class StagedPass {
 public:
  /// What a stage sends to the next: the value of a node for one micro-batch.
  struct Border {
    Shape shape;
    at::ScalarType type = at::kFloat;
  };
  struct Work {
    std::function<at::Tensor(const at::Tensor& x)> forward;  ///< this rank's stage
    /// Last stage only: returns the scalar to be minimized for what forward() gave for micro-batch `number`.
    std::function<at::Tensor(const at::Tensor& y, int number)> loss;
    std::function<void()> before_last_backward;  ///< called when all forward passes of this rank are done
    std::function<void()> after_backward;        ///< called when a micro-batch's gradients are at the parameters
  };

  /// ranks: null if one process runs the whole network. borders: one after each stage but the last. Rank r runs stage
  /// r mod stages of replica r / stages. All ranks call it with equal arguments.
  StagedPass(Ranks* ranks, std::vector<Border> borders, int micro_batches, bool channels_last);

  /// images: the batch, which only the first stage reads. Leaves gradients, summed over micro-batches, at this rank's
  /// parameters. On a GPU it only launches, so that a CUDA graph can record it.
  void run(const at::Tensor& images, const Work& work);

  int stage() const { return stage_; }  ///< this rank's

  /// Returns how many micro-batches a stage sends on before its first backward pass; it has started one more by then.
  static int ahead(int stage, int stages, int micro_batches);
  /// Returns how many micro-batches a stage holds at most: forward done or begun, backward not.
  static int max_under_way(int stage, int stages, int micro_batches);

 private:
  struct Flight;
  at::Tensor buffer(const Border& border, int64_t images, at::Device device) const;
  void forward(Flight& flight, int number) const;
  void backward(Flight& flight, int number) const;
  void swap_with_next(Flight& flight, int sent, int answered) const;
  void swap_with_previous(Flight& flight, int answered, int arriving) const;

  bool first() const { return stage_ == 0; }
  bool last() const { return stage_ + 1 == stages_; }

  Ranks* const ranks_;
  const std::vector<Border> borders_;
  const int stages_, rank_, stage_, micro_batches_;
  const at::MemoryFormat format_;
};

/// Two streams of a GPU for independent kernels: a kernel of one stream takes the multiprocessors that the last blocks
/// of the other's leave idle. On the CPU work runs when it is queued.
class Lanes {
 public:
  explicit Lanes(at::Device device);
  /// Joins if that was not done: an exception could otherwise free memory that lane 1 still uses, or end the recording
  /// of a CUDA graph before the stream of lane 1 has joined, which fails.
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  void fork();  ///< lane 0 is the current stream from now on; lane 1 starts after what is queued there
  void join();  ///< later work of lane 0 starts after all that is queued in lane 1

  /// A sequence of work that keeps its order, whichever lanes its parts run in.
  class Row {
   private:
    friend class Lanes;
    std::optional<c10::Event> last_;
  };

  /// Queues what `work` launches in lane `number` mod 2, after what is in the row.
  template <class Work>
  void queue(int number, Row& row, const Work& work) {
    c10::OptionalStreamGuard guard;
    enter(number, row, guard);
    work();
    leave(number, row);
  }

 private:
  void enter(int number, const Row& row, c10::OptionalStreamGuard& guard) const;
  void leave(int number, Row& row) const;

  const at::Device device_;
  std::vector<c10::Stream> streams_;  // between fork() and join(); empty on the CPU
};

}  // namespace octet
