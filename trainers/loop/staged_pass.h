// Forward and backward pass of a network that is cut into stages, one a rank: the micro-batches of a batch follow each
// other through them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "src/graph/graph.h"
#include "trainers/ranks/ranks.h"

namespace octet {

/// One forward, one backward in turns once the stages are filled (1F1B: Narayanan et al. 2021, arXiv 2104.04473), two
/// micro-batches further ahead than they need: one so that what travels does so beside the work, and one so that on a
/// GPU a forward pass runs beside the backward pass of another micro-batch. Every stage takes its micro-batches in
/// ascending order, forward and backward: gradients add up as in one process that does the same.
class StagedPass {
 public:
  /// What goes from a stage to the next: a micro-batch of a node's values.
  struct Border {
    Shape shape;
    at::ScalarType type = at::kFloat;
  };
  struct Work {
    std::function<at::Tensor(const at::Tensor& x)> forward;  ///< this rank's stage
    /// The last stage: of what forward() gave for micro-batch `number`, a scalar to be minimized.
    std::function<at::Tensor(const at::Tensor& y, int number)> loss;
    std::function<void()> before_last_backward;  ///< this rank's forward passes are all done then
    std::function<void()> after_backward;        ///< of each micro-batch: its gradients are at the parameters
  };

  /// `ranks`: null where one process walks the whole network. `borders`: one behind each stage but the last. Rank r has
  /// stage r mod the number of stages, of replica r / that number. Every rank calls it alike.
  StagedPass(Ranks* ranks, std::vector<Border> borders, int micro_batches, bool channels_last);

  /// images: the batch; read by the first stage. Leaves gradients, summed over micro-batches, at this rank's
  /// parameters. On a GPU launches only: a CUDA graph can record it.
  void run(const at::Tensor& images, const Work& work);

  int stage() const { return stage_; }  ///< this rank's

  /// Micro-batches that a stage of `stages` sends on before its first backward pass; the next is forward by then, too.
  static int ahead(int stage, int stages, int micro_batches);
  static int most_under_way(int stage, int stages, int micro_batches);  ///< forward but not yet backward, there

 private:
  struct Flight;
  at::Tensor buffer(const Border& border, int64_t pictures, at::Device device) const;
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

}  // namespace octet
