// A group of nodes of a compiled network, and by which kernels it runs: its nodes' own, one after the other, or one
// that computes them all.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/cuda/stream.h"
#include "src/engine/cuda/step.h"
#include "src/engine/cuda/work_space.h"
#include "src/engine/fusion.h"

namespace octet {

/// What a choice is made on, for so many images: all steps of the nodes are prepared and have run.
struct GroupProblem {
  int images = 0;
  std::string separate_kernels;                       ///< names of the nodes' own
  std::function<void()> run_separate;                 ///< launches them
  std::function<CudaStepData()> fused;                ///< the tensors of the group as one, with work space as it is now
  std::vector<std::unique_ptr<CudaStep>> candidates;  ///< group_steps.h
  bool always = false;                                ///< one of them is taken, whether it is faster or not
};

class CudaGroup {
 public:
  CudaGroup(const Int8Graph& graph, NodeGroup nodes);

  const NodeGroup& group() const { return group_; }
  int first() const { return group_.nodes.front(); }
  int last() const { return group_.nodes.back(); }

  /// Takes what is fastest by measurement, each way behind itself, and makes it ready; `work` has room for it
  /// afterwards. Throws as fastest_candidate() and CudaStep::prepare().
  void choose(GroupProblem problem, WorkSpace& work, const Stream& stream);
  /// The step that computes the group of so many images, or null: the nodes' own do, or nothing is chosen yet.
  const CudaStep* fused(int images) const;
  /// Frees what choose() made ready for so many images.
  void forget(int images) { chosen_.erase(images); }
  size_t constant_bytes() const;

  std::vector<const uint8_t*> inputs;  ///< of the group as one; whoever places tensors sets them

 private:
  NodeGroup group_;
  std::string description_;                          ///< all that times depend on but images and kernels
  std::map<int, std::unique_ptr<CudaStep>> chosen_;  ///< by number of images; null: separate
};

}  // namespace octet
