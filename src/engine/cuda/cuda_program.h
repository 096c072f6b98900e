// SPDX-License-Identifier: Apache-2.0
// A network compiled for the GPU: steps that share one arena, replayed as one CUDA graph for each batch size. The
// engines cuda, cudnn and cutlass differ in the steps that they make.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "src/engine/cuda/cuda_group.h"
#include "src/engine/cuda/host_copies.h"
#include "src/engine/cuda/step.h"
#include "src/engine/engine.h"
#include "src/engine/memory_plan.h"

namespace octet {

class CudaProgram final : public Program {
 public:
  /// Compiles a graph that passed Engine::check() and prepares max_batch; other batch sizes are prepared at their first
  /// use. Throws Error(promise) that names the node for which a kernel or memory is missing; if memory is too small, it
  /// says which batch would fit.
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
    /// The lookup that is computed with this convolution (fusion.h), or -1. Such a convolution runs alone only for a
    /// tap.
    int lookup = -1;
    int group = -1;          ///< index in groups_, or -1
    int buffer = 0;          ///< the node whose memory holds the output: for a merged lookup, its convolution
    size_t image_bytes = 0;  ///< bytes of one image's output, including lanes between channels and stride
    std::vector<const uint8_t*> inputs;
    uint8_t* output = nullptr;
    std::set<int> beside;  ///< batch sizes at which it runs concurrently with the launch before it
  };

  struct BatchPlan {
    int batch = 0;
    std::unique_ptr<CapturedGraph> graph;
    int work_moves = -1;  ///< WorkSpace::moves() at the time of capture
  };

  void make_layers(const CudaStepFactory& make_step);
  void make_groups(const std::vector<NodeGroup>& groups);
  MemoryPlan arena_plan(int images) const;
  void make_arena();
  /// Returns the error that says what was planned and which batch would fit, after an allocation for `images` failed
  /// although all memory except `work` bytes of work space was allocated.
  Error does_not_fit(const OutOfGpuMemory& error, int images, size_t work) const;
  BatchPlan& plan_for(int batch);
  void forget_last_plan();
  void prepare_steps(int batch);
  void choose_group(CudaGroup& group, int batch);
  void capture(BatchPlan& plan);
  /// Lets nodes run concurrently with the launch before them, where that is allowed and faster.
  void choose_beside(int batch);
  /// Returns the memory that a run's launch at the node reads and writes.
  Traffic traffic(size_t node, int batch) const;
  /// Whether the node, which no group computes, may run concurrently with a run's launch at node `before`.
  bool may_run_beside(size_t before, size_t node, int batch) const;
  CudaStepData data(size_t node, int batch) const;             ///< tensors of a node's own step
  CudaStepData data(const CudaGroup& group, int batch) const;  ///< tensors of a kernel that computes a group
  /// Returns the node's group if one kernel computes it at this batch size, else null.
  const CudaGroup* fused_group(size_t node, int batch) const;
  /// Launches the node's own step; returns false if it has none.
  bool launch(size_t node, int batch, bool beside = false) const;
  /// Whether a run without a tap launches a kernel at the node: the node's own step or, at the last node of a group
  /// that one kernel computes, that kernel. Otherwise another node's kernel computes this node too.
  bool launches_in_run(size_t node, int batch) const;
  /// Launches that kernel, `alone` or concurrently with the launch before it where choose_beside() chose that. Returns
  /// false if there is none.
  bool launch_in_run(size_t node, int batch, bool alone = false) const;
  /// Calls `work` and adds the node's name to its errors.
  void at_node(size_t node, const std::function<void()>& work) const;
  void run_with_tap(int batch, const NodeTap& tap);
  /// Writes a node's output to `to`, without the lanes between channels and stride. copy(host, bytes) copies it from
  /// the device as it is there.
  template <typename Copy>
  void hand_over(size_t node, int batch, void* to, const Copy& copy);
  /// Copies a node's output to the host without gaps, after all work on the stream, which `what` names in errors.
  void download(size_t node, int batch, void* to, const char* what);
  /// Copies a node's output without the lanes between channels and stride, both on the host.
  void close_gaps(size_t node, int batch, const uint8_t* from, void* to) const;
  /// Calls `work`. After an error, waits until the caller's memory is no longer in use, and adds the network's name.
  template <typename Work>
  void at_batch(int batch, const Work& work);
  void show(const NodeTap& tap, size_t node, int batch);
  void upload_random_images(int batch);

  /// Its weights are packed again when a new batch size asks for another kernel. A merged lookup has the inputs of its
  /// convolution.
  Int8Graph graph_;
  Lowering lowering_;  ///< of graph_
  int max_batch_;
  Stream stream_;
  std::vector<Layer> layers_;
  CudaGroupFactory make_group_;
  bool always_fused_;
  std::vector<CudaGroup> groups_;  ///< the groups that a kernel can compute
  DeviceBuffer images_;            ///< pixels [max_batch, H, W, C]
  DeviceBuffer arena_;
  WorkSpace work_;
  HostCopies host_;
  PinnedBuffer shown_;           ///< a node's output, for a tap: page-locked, it arrives several times as fast
  std::vector<uint8_t> gapped_;  ///< a node's output with lanes between channels and stride
  std::list<BatchPlan> plans_;   ///< the most recently used first
  std::unique_ptr<BatchQueue>
      queue_;  ///< made by the first submit(); the last member, as its destructor waits for batches
};

/// Calls `compile` with GPU `gpu` (or kCurrentGpu) current, and returns a program that makes the same GPU current in
/// every call and in its destructor, in any thread; afterwards the thread's own GPU is current again (GpuGuard).
std::unique_ptr<Program> compile_on_gpu(int gpu, const std::function<std::unique_ptr<Program>()>& compile);

}  // namespace octet
