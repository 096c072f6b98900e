// SPDX-License-Identifier: Apache-2.0
// A group of nodes of a compiled network (fusion.h), the kernels that compute it as one, and which run it: one of them,
// or its nodes' own, one after the other.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/cuda/stream.h"
#include "src/engine/cuda/choice.h"
#include "src/engine/cuda/step.h"
#include "src/engine/fusion.h"

namespace octet {

/// The values of CompileOptions::kernels that concern groups alone.
inline constexpr const char* kSeparateKernels = "separate";
inline constexpr const char* kFusedKernels = "fused";

using CudaSteps = std::vector<std::unique_ptr<CudaStep>>;

/// Returns a step for each kernel that can compute one group of so many images, the likely fastest first. A step reads
/// inputs[0], the input of the group's first node, and inputs[1], the residual if one of its nodes has one. It writes
/// the last node's output; an expand_reduce also writes the first node's, whether other nodes read it or not. The steps
/// share their constants, which are on the device as long as one of the prepared steps lives.
using GroupKernels = std::function<CudaSteps(int images)>;

/// Returns the kernels of a group, or null if none computes it for any number of images. The factory, `lowering` and
/// its graph outlive the program.
using CudaGroupFactory = std::function<GroupKernels(const Lowering& lowering, const NodeGroup& group)>;

/// Returns the factory of octet's own kernels whose names contain `kernels`, which is CompileOptions::kernels.
CudaGroupFactory cuda_group_steps(const std::string& kernels);

/// Returns CompileOptions::kernels for single nodes: "auto" instead of the two values above.
std::string kernels_of_nodes(const std::string& kernels);

/// A node of a group with its own, prepared step and its tensors.
struct GroupNode {
  const CudaStep* step;
  std::vector<const uint8_t*> inputs;
  uint8_t* output;
  size_t bytes;  ///< size of the output
};

/// What a choice for one batch size is measured on.
struct GroupProblem {
  int images = 0;
  bool always = false;  ///< one kernel must compute the group, whether that is faster or not
  std::vector<GroupNode> nodes;
  std::function<void()> run_earlier;  ///< launches everything that a run launches before the group
  std::function<void()> run_before;   ///< launches the last of that
};

/// Returns one line with everything that the times of these nodes may depend on, except images and kernels: operators,
/// shapes, windows, groups, clamps, and the kinds of codes of the nodes and their inputs.
std::string described_nodes(const Int8Graph& graph, const std::vector<int>& nodes);

class CudaGroup {
 public:
  CudaGroup(const Int8Graph& graph, NodeGroup nodes, GroupKernels kernels);

  const NodeGroup& group() const { return group_; }
  const std::string& description() const { return description_; }  ///< the group's kind and described_nodes()
  int first() const { return group_.nodes.front(); }
  int last() const { return group_.nodes.back(); }

  /// Chooses the fastest kernels by measurement, each alternative timed after what runs before the group, as
  /// convolutions are (conv_step.h), and prepares them. Afterwards `work` has room for them and the outputs hold a
  /// run's values. Throws as fastest_candidate() and CudaStep::prepare() do.
  void choose(const GroupProblem& problem, WorkSpace& work, const Stream& stream);
  /// Returns the step that computes the group for so many images, or null if the nodes' own steps do, or nothing has
  /// been chosen yet.
  const CudaStep* fused(int images) const;
  /// Frees what choose() prepared for so many images.
  void forget(int images) { chosen_.erase(images); }
  size_t constant_bytes() const;

  std::vector<const uint8_t*> inputs;  ///< of the kernel that computes the group; set by CudaProgram::make_arena()

 private:
  /// Returns the fastest alternative; a null step stands for the nodes' own steps.
  MeasuredChoice fastest(const GroupProblem& problem, const CudaSteps& alternatives,
                         const std::vector<std::string>& names, WorkSpace& work, const Stream& stream) const;
  /// Prepares a step and makes room for its work space.
  void make_ready(CudaStep& step, const GroupProblem& problem, WorkSpace& work, const Stream& stream) const;
  /// Launches `step`, or the nodes' own steps if it is null; `outputs` has one pointer a node.
  void launch(const CudaStep* step, const GroupProblem& problem, const std::vector<uint8_t*>& outputs,
              const WorkSpace& work, const Stream& stream) const;

  NodeGroup group_;
  GroupKernels kernels_;
  std::string description_;
  std::map<int, std::unique_ptr<CudaStep>> chosen_;  ///< by number of images; null: the nodes' own steps
};

}  // namespace octet
