// A network compiled for the GPU: a list of steps over one arena, replayed as one CUDA graph for each batch size. The
// engines cuda, cudnn and cutlass differ in the steps they make.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "src/engine/cuda/batch_queue.h"
#include "src/engine/cuda/beside.h"
#include "src/engine/cuda/cuda_group.h"
#include "src/engine/cuda/group_steps.h"
#include "src/engine/cuda/host_copies.h"
#include "src/engine/cuda/step.h"
#include "src/engine/cuda/work_space.h"
#include "src/engine/engine.h"
#include "src/engine/memory_plan.h"

namespace octet {

class CudaProgram final : public Program {
 public:
  /// After Engine::check(). Prepares max_batch; other batch sizes when they are first used. Throws Error(promise)
  /// naming the node when a kernel or memory is missing; out of memory says which batch would fit.
  CudaProgram(const Int8Graph& graph, const CompileOptions& options, const CudaStepFactory& make_step,
              CudaGroupFactory make_group);

  void run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap) override;
  void submit(const uint8_t* images, int batch) override;
  void collect(const OutputMemory& outputs) override;
  void prepare(int batch) override;
  std::vector<LayerInfo> layers() const override;  ///< kernels for max_batch images
  size_t arena_bytes() const override { return arena_.bytes(); }
  std::vector<double> time_on_device(int batch, int runs) override;
  std::vector<double> time_layers_on_device(int batch, int runs) override;

 private:
  struct Layer {
    std::unique_ptr<CudaStep> step;  ///< null: the output is the input's memory
    /// Of a convolution: the lookup that is computed with it (fusion.h), or -1. Alone it runs for a tap only.
    int lookup = -1;
    int group = -1;          ///< index of groups_
    int buffer = 0;          ///< node whose memory holds the output; of a merged lookup its convolution
    size_t image_bytes = 0;  ///< of the output, with lanes between channels and stride
    std::vector<const uint8_t*> inputs;
    uint8_t* output = nullptr;
    std::set<int> beside;  ///< batches of which it runs beside what is launched before it
  };

  struct BatchPlan {
    int batch = 0;
    std::unique_ptr<CapturedGraph> graph;
    int work_moves = -1;  ///< WorkSpace::moves() that the graph has seen
  };

  void make_layers(const CudaStepFactory& make_step);
  void make_groups(const std::vector<NodeGroup>& groups);
  MemoryPlan arena_plan(int images) const;
  void make_arena();
  /// What was planned and which batch would fit, after an allocation for `images` failed when all memory was there but
  /// `work` bytes of work space.
  Error does_not_fit(const OutOfGpuMemory& error, int images, size_t work) const;
  BatchPlan& plan_for(int batch);
  void forget_last_plan();
  void prepare_steps(int batch);
  void choose_group(CudaGroup& group, int batch);
  void capture(BatchPlan& plan);
  /// Lets nodes run beside what a run launches before them, where they may and where that is faster.
  void choose_beside(int batch);
  /// Of what a run launches at the node.
  Traffic traffic(size_t node, int batch) const;
  /// Whether the node, which no group computes, may run while what is launched at node `before` does.
  bool may_run_beside(size_t before, size_t node, int batch) const;
  CudaStepData data(size_t node, int batch) const;
  /// Of a group as one.
  CudaStepData data(const CudaGroup& group, int batch) const;
  /// The group of a node where one kernel computes it, else null.
  const CudaGroup* fused_group(size_t node, int batch) const;
  /// launch() of one node; false when it has none.
  bool launch(size_t node, int batch, bool beside = false) const;
  /// Whether a run without a tap launches something at a node: its own step or, at the last of a group that one kernel
  /// computes, that. Else others compute the node too.
  bool launches_in_run(size_t node, int batch) const;
  /// Does so, `alone` or beside what a run launches before it. False when there is nothing.
  bool launch_in_run(size_t node, int batch, bool alone = false) const;
  /// Calls `work` and names the node in its errors.
  void at_node(size_t node, const std::function<void()>& work) const;
  void run_with_tap(int batch, const NodeTap& tap);
  /// A node's output without gaps, once everything on the stream is done. `what` names that in errors.
  void download(size_t node, int batch, void* to, const char* what);
  /// A node's output without the lanes between channels and stride.
  void close_gaps(size_t node, int batch, const uint8_t* from, void* to) const;
  /// Calls `work`; an error names the network and waits until the caller's memory is not in use any more.
  template <typename Work>
  void at_batch(int batch, const Work& work);
  void show(const NodeTap& tap, size_t node, int batch);
  void upload_random_images(int batch);

  /// Steps pack its weights when a new batch size asks for another kernel. A merged lookup has the inputs of its
  /// convolution.
  Int8Graph graph_;
  Lowering lowering_;  ///< of graph_
  int max_batch_;
  Stream stream_;
  std::vector<Layer> layers_;
  CudaGroupFactory make_group_;
  bool always_fused_;
  std::vector<CudaGroup> groups_;  ///< those that a kernel can compute
  DeviceBuffer images_;            ///< pixels [max_batch, H, W, C]
  DeviceBuffer arena_;
  WorkSpace work_;
  HostCopies host_;
  std::vector<uint8_t> shown_;         ///< a node's output for a tap
  std::vector<uint8_t> gapped_;        ///< the same as on the device, with lanes between channels and stride
  std::list<BatchPlan> plans_;         ///< the last used first
  std::unique_ptr<BatchQueue> queue_;  ///< made by the first submit(); goes first, and waits
};

}  // namespace octet
