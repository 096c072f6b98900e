// Engines run an Int8Graph. No LibTorch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/cuda/device.h"
#include "src/graph/int8_graph.h"

namespace octet {

struct Support {
  bool ok = false;
  std::string reason;  ///< "C=20: needs a multiple of 16"
};

struct CompileOptions {
  int max_batch = 1;  ///< memory is planned for this many images
  int threads = 0;    ///< 0: all cores
  /// cpu engine: "auto", "avx512_vnni", "avx2", "portable". cuda engine: "auto" (the fastest by measurement), or part
  /// of the names of the only convolution kernels allowed, as LayerInfo shows them. One the machine lacks is an error.
  /// For what several nodes may share (fusion.h): "separate" runs each node by a kernel of its own, "fused" has every
  /// group that a kernel can compute run as one without measuring whether that is faster; else they are like "auto".
  /// cudnn engine: "auto" (the fastest of all plans that cuDNN proposes), or "heuristic" (its first; quicker to
  /// compile). cutlass engine: "auto" (the fastest tile).
  std::string kernels = "auto";
  /// cudnn and cutlass engines: the engine that runs the nodes they cannot, "cuda"; "none": such a node is an error.
  std::string fallback = "none";
  /// cuda, cudnn and cutlass engines: the GPU that the program runs on, whichever is current in the threads that use
  /// it.
  int gpu = kCurrentGpu;
};

/// What ran where, for reports and `octet inspect`.
struct LayerInfo {
  std::string name;  ///< of the Int8Node
  /// "conv1x1_avx512_vnni_m6n64"; "alias": the output is the input's memory; "merged": the kernel of its (first)
  /// input's node computes it too (a look-up, or a group of fusion.h).
  std::string kernel;
  std::string engine;  ///< where another than the program's own may run a node (a fallback); else ""
};

/// Called after each node with the output's codes as stored in the graph: bytes [batch, H, W, C] (int8 or uint8 by
/// out.is_signed()), or float32 [batch, H, W, C] for a node with float_output. Valid during the call only.
using NodeTap = std::function<void(int node, const void* data, size_t bytes)>;

/// The caller's memory for the outputs of a run, in the graph's order: each as a tap would show it. A classifier's are
/// float logits, [batch, classes].
class OutputMemory {
 public:
  OutputMemory(float* logits) : only_(logits) {}  // NOLINT(google-explicit-constructor): the case of one
  OutputMemory(std::span<void* const> outputs) : all_(outputs) {}  // NOLINT(google-explicit-constructor)
  size_t size() const { return only_ ? 1 : all_.size(); }
  void* operator[](size_t output) const { return only_ ? only_ : all_[output]; }

 private:
  void* only_ = nullptr;
  std::span<void* const> all_;
};

/// A compiled network with its own memory; not thread-safe, make one a thread.
class Program {
 public:
  virtual ~Program() = default;
  /// images: uint8 [batch, H, W, C]; 1 <= batch <= max_batch. Images and outputs lie in host memory; an engine on the
  /// GPU copies page-locked memory (PinnedBuffer in src/cuda/memory.h) fastest. Throws Error(usage) for another batch
  /// or another number of outputs than the graph has.
  virtual void run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap = nullptr) = 0;
  /// run() in two halves, at most kMostSubmitted at a time, collected in the order in which they were submitted: on the
  /// GPU the images of one batch travel while the batch before it is computed; an engine on the host computes in
  /// collect(). `images` stay where and as they are until then. One of the two throws what run() would, and
  /// Error(usage) for one batch too many or nothing to collect.
  virtual void submit(const uint8_t* images, int batch);
  virtual void collect(const OutputMemory& outputs);
  static constexpr size_t kMostSubmitted = 2;
  /// What run() does once for a batch size that it has not seen: choosing kernels, capturing a graph. For whoever times
  /// run() and wants to leave that out.
  virtual void prepare(int batch) {}
  virtual std::vector<LayerInfo> layers() const = 0;
  virtual size_t arena_bytes() const = 0;  ///< planned activation memory

  /// Milliseconds of `runs` runs of random images that already lie on the device, outputs staying there, by device
  /// events; empty for engines on the host, where run() itself is timed.
  virtual std::vector<double> time_on_device(int batch, int runs) { return {}; }
  /// The same for every node alone, in node order: the median of `runs`; 0 for a node without a kernel of its own.
  /// Nodes that run together have their time at the last of them.
  virtual std::vector<double> time_layers_on_device(int batch, int runs) { return {}; }

 private:
  struct Submitted {
    const uint8_t* images;
    int batch;
  };
  std::deque<Submitted> submitted_;  ///< of an engine on the host
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string_view name() const = 0;
  /// Can this machine (and this build) run it at all: an engine that needs a GPU, on the thread's current one.
  virtual Support available() const = 0;
  /// The same on the GPU of that number, or kCurrentGpu; engines on the host do not mind it.
  virtual Support available_on(int) const { return available(); }
  virtual bool on_gpu() const { return false; }  ///< needs a GPU
  /// Promises the reference's bytes at every node. Differences of one that does not are counted and reported, no
  /// failure.
  virtual bool exact() const { return true; }
  virtual Support supports(const Int8Graph& graph, int node) const = 0;  ///< never throws, never launches
  /// What compile() refuses about the graph, the options and the machine, told without its work. Throws Error(promise)
  /// naming the first node it does not support and why.
  virtual void check(const Int8Graph& graph, const CompileOptions& options) const;
  /// After check(); throws as it does.
  virtual std::unique_ptr<Program> compile(const Int8Graph& graph, const CompileOptions& options) const = 0;
};

/// Written order is preference; reference last. Nothing registers itself.
const std::vector<const Engine*>& engines();

/// Those that this machine can run and that promise the reference's bytes, in the same order; never empty. What "auto"
/// means.
std::vector<const Engine*> exact_engines();

/// The engine of that name; throws Error(usage) listing the names.
const Engine& find_engine(std::string_view name);

}  // namespace octet
