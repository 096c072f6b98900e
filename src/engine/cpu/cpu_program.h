// A network compiled for the CPU: a list of steps over one arena. run() allocates nothing unless there is a tap.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "src/common/thread_pool.h"
#include "src/engine/aligned_buffer.h"
#include "src/engine/cpu/step.h"
#include "src/engine/engine.h"
#include "src/engine/memory_plan.h"

namespace octet {

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
    std::vector<int> inputs;        ///< of a merged lookup: the convolution's
    /// Of a convolution: the lookup that is computed with it (fusion.h), or -1. Alone it runs for a tap only.
    int lookup = -1;
    int buffer = 0;  ///< node whose memory holds the output
    Shape shape;
    bool is_signed = false;   ///< in the graph; here codes are raised by 128
    size_t image_bytes = 0;   ///< of the output, with lanes between channels and stride
    int stride = 0;           ///< of the output, in elements
    int output = -1;          ///< of the network, where floats go straight to the caller; -1: none
    size_t output_bytes = 0;  ///< of one image there
  };

  /// Buffers of all layers for up to `images` images at a time.
  struct Memory {
    int images = 0;
    AlignedBuffer arena;
    std::vector<uint8_t*> outputs;                    ///< one a layer; for a tap's runs those of all
    std::vector<std::vector<const uint8_t*>> inputs;  ///< one list a layer
  };

  Memory make_memory(int images, bool with_tap) const;
  /// Images of a batch that go through the network together.
  struct Chunk {
    const uint8_t* images = nullptr;
    int first = 0, count = 0;
  };

  void run_chunk(const Memory& memory, const Chunk& chunk, const OutputMemory& outputs, const NodeTap& tap);
  void run_step(const CpuStep& step, const StepData& data);
  /// The codes of `count` images as the graph has them: [count, H, W, C], signed where it says so.
  void copy_codes(int node, const Memory& memory, int count, uint8_t* codes) const;
  void show(const NodeTap& tap, int node, const Memory& memory, int count) const;

  int max_batch_;
  ThreadPool pool_;
  std::vector<Layer> layers_;
  std::vector<int> outputs_;       ///< nodes
  std::vector<BufferLife> lives_;  ///< bytes of one image
  size_t workspace_bytes_ = 0;     ///< of one thread
  AlignedBuffer workspaces_;
  Memory chunk_memory_;
};

}  // namespace octet
