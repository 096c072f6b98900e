// SPDX-License-Identifier: Apache-2.0
// A network compiled for the CPU: steps that share one arena. A step is one node: a kernel whose work is cut into tasks
// that threads share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "kernels/core/codes.h"
#include "src/base/threads.h"
#include "src/engine/engine.h"
#include "src/engine/lowering.h"
#include "src/engine/memory_plan.h"
#include "src/net/int8_graph.h"

namespace octet {
/// The tensors of one call: uint8 [images, H, W, cpu_channel_stride(C)], one pointer an input of the node; for the
/// input node the pixels [images, H, W, C]. A node with float_output writes float32 [images, H, W, C].
struct StepData {
  int images = 0;
  const uint8_t* const* inputs = nullptr;
  void* output = nullptr;
};

class CpuStep {
 public:
  virtual ~CpuStep() = default;
  virtual std::string kernel() const = 0;               ///< the kernel's name for LayerInfo
  virtual size_t workspace_bytes() const { return 0; }  ///< scratch that each thread needs
  virtual int tasks(int images) const = 0;              ///< number of independent pieces of the work
  /// Computes the tasks of the range. `workspace` is the thread's scratch, aligned to 64 bytes.
  virtual void run(const StepData& data, kernels::Range tasks, void* workspace) const = 0;
  /// Returns a convolution's step with the same packed weights that also looks up every code it writes; null for
  /// other steps.
  virtual std::unique_ptr<CpuStep> with_lookup(const kernels::LookupTable&) const { return nullptr; }
};

/// Returns the step of a node of a graph with unsigned edges, or null if its output shares its input's memory. The step
/// holds packed weights: the graph may be destroyed afterwards. Throws Error(promise) for an unknown operator.
std::unique_ptr<CpuStep> make_cpu_step(const Lowering& lowering, int node, kernels::CpuIsa isa);

/// Added to every code, zero point and clamp of a signed edge, which flips the highest bit of its bytes.
inline constexpr int kSignedShift = 128;

/// Returns the same network with uint8 edges only, because the cpu kernels compute on uint8: the codes of signed edges
/// are raised by kSignedShift; real values and logits stay the same.
Int8Graph with_unsigned_edges(Int8Graph graph);

/// run() allocates nothing unless there is a tap.
class CpuProgram final : public Program {
 public:
  CpuProgram(const Int8Graph& graph, const CompileOptions& options, kernels::CpuIsa isa);
  void run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap) override;
  std::vector<LayerInfo> layers() const override;
  size_t arena_bytes() const override { return chunk_memory_.arena.bytes(); }

 private:
  /// A node without its weights.
  struct Layer {
    std::string name;
    std::unique_ptr<CpuStep> step;  ///< null: the output is the input's memory
    std::vector<int> inputs;        ///< nodes; for a merged lookup those of its convolution
    /// The lookup that is computed with this convolution (fusion.h), or -1. Such a convolution runs alone only for a
    /// tap.
    int lookup = -1;
    int buffer = 0;  ///< node whose memory holds the output
    Shape shape;
    bool is_signed = false;   ///< whether the original graph's codes are signed
    size_t image_bytes = 0;   ///< bytes of one image's output, including lanes between channels and stride
    int stride = 0;           ///< elements from one pixel of the output to the next
    int output = -1;          ///< index of the network's output whose floats the node writes directly, or -1
    size_t output_bytes = 0;  ///< bytes of one image's output as the graph has it
  };

  /// Layers [first, last), through which `images` images of a chunk go before the next ones do.
  struct Stretch {
    int first = 0, last = 0, images = 0;
  };

  /// The buffers of all layers for up to `images` images at a time.
  struct Memory {
    int images = 0;
    std::vector<Stretch> stretches;
    AlignedBuffer arena;
    std::vector<uint8_t*> outputs;  ///< one pointer a layer
    std::vector<size_t>
        image_steps;  ///< one a layer: bytes to the next image's output; 0 if a stretch's images share it
  };

  /// Divides the network for chunks of so many images.
  std::vector<Stretch> make_stretches(int images) const;
  Memory make_memory(int images, bool with_tap) const;
  /// Consecutive images of a batch that go through the network together.
  struct Chunk {
    const uint8_t* images = nullptr;
    int first = 0, count = 0;
  };

  void run_chunk(const Memory& memory, const Chunk& chunk, const OutputMemory& outputs, const NodeTap& tap);
  /// Computes a layer for `count` images of a chunk, from its image `first` on.
  void run_layer(const Memory& memory, const Chunk& chunk, int first, int count, int node, const OutputMemory& outputs);
  void run_step(const CpuStep& step, const StepData& data);
  /// Copies the codes of `count` images as the original graph has them: [count, H, W, C], signed where it says so.
  void copy_codes(int node, const Memory& memory, int count, uint8_t* codes) const;
  void show(const NodeTap& tap, int node, const Memory& memory, int count, const OutputMemory& outputs) const;

  int max_batch_;
  ThreadPool pool_;
  std::vector<Layer> layers_;
  std::vector<int> outputs_;       ///< nodes
  std::vector<BufferLife> lives_;  ///< lifetimes of the layers' buffers, with the bytes of one image
  size_t workspace_bytes_ = 0;     ///< scratch of one thread
  AlignedBuffer workspaces_;
  Memory chunk_memory_;
  std::vector<const uint8_t*> inputs_;  ///< of the layer that runs
};

}  // namespace octet
