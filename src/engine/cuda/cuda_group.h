// A group of nodes of a compiled network, and by which kernels it runs: its nodes' own, one after the other, or one
// that computes them all.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/cuda/stream.h"
#include "src/engine/cuda/group_steps.h"
#include "src/engine/cuda/remembered_choice.h"
#include "src/engine/cuda/step.h"
#include "src/engine/cuda/work_space.h"
#include "src/engine/fusion.h"

namespace octet {

/// A node of a group with its own step, prepared, and its tensors of so many images.
struct GroupNode {
  const CudaStep* step;
  std::vector<const uint8_t*> inputs;
  uint8_t* output;
  size_t bytes;  ///< of the output
};

/// What a choice is made on, for so many images.
struct GroupProblem {
  int images = 0;
  bool always = false;  ///< a kernel of the group is taken, whether it is faster or not
  std::vector<GroupNode> nodes;
  std::function<void()> run_earlier;  ///< launches all that a run launches before the group
  std::function<void()> run_before;   ///< the last of that
};

/// All that times of these nodes may depend on but images and kernels, in one line: operators, shapes, windows, groups,
/// clamps, and how codes are written, theirs and their inputs'.
std::string described_nodes(const Int8Graph& graph, const std::vector<int>& nodes);

class CudaGroup {
 public:
  CudaGroup(const Int8Graph& graph, NodeGroup nodes, GroupKernels kernels);

  const NodeGroup& group() const { return group_; }
  const std::string& description() const { return description_; }  ///< its kind and described_nodes()
  int first() const { return group_.nodes.front(); }
  int last() const { return group_.nodes.back(); }

  /// Takes what is fastest by measurement, each way behind what runs before the group, as convolutions are timed
  /// (conv_choice.h), and makes it ready; `work` has room for it afterwards, and outputs hold what a run leaves there.
  /// Throws as fastest_candidate() and CudaStep::prepare().
  void choose(const GroupProblem& problem, WorkSpace& work, const Stream& stream);
  /// The step that computes the group of so many images, or null: the nodes' own do, or nothing is chosen yet.
  const CudaStep* fused(int images) const;
  /// Frees what choose() made ready for so many images.
  void forget(int images) { chosen_.erase(images); }
  size_t constant_bytes() const;

  std::vector<const uint8_t*> inputs;  ///< of the group as one; whoever places tensors sets them

 private:
  /// The fastest of `ways`; null is the nodes' own steps.
  MeasuredChoice fastest(const GroupProblem& problem, const CudaSteps& ways, const std::vector<std::string>& names,
                         WorkSpace& work, const Stream& stream) const;
  void make_ready(CudaStep& step, const GroupProblem& problem, WorkSpace& work, const Stream& stream) const;
  /// Launches `step`, or the nodes' own when it is null; outputs: of each node.
  void launch(const CudaStep* step, const GroupProblem& problem, const std::vector<uint8_t*>& outputs,
              const WorkSpace& work, const Stream& stream) const;

  NodeGroup group_;
  GroupKernels kernels_;
  std::string description_;
  std::map<int, std::unique_ptr<CudaStep>> chosen_;  ///< by number of images; null: separate
};

}  // namespace octet
