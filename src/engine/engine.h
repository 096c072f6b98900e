// SPDX-License-Identifier: Apache-2.0
// The interface of engines, which run an Int8Graph; the list of engines; and which of them this machine can run.
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
#include "src/net/int8_graph.h"

namespace octet {

/// Whether something can be done, and the reason if it cannot.
struct Support {
  bool ok = false;
  std::string reason;  ///< for example "C=20: needs a multiple of 16"
};

struct CompileOptions {
  int max_batch = 1;  ///< the largest batch in images; memory is planned for it
  int threads = 0;    ///< threads of the cpu and reference engines; 0 takes all cores
  /// Which kernels may run; a name that the machine or the engine lacks is an error. "auto" is the fastest everywhere.
  /// cpu: a name of kernels::cpu_isa_name(). cuda: a part of the names of the only convolution kernels allowed, as
  /// LayerInfo shows them; "separate" gives every node a kernel of its own, "fused" runs every group of fusion.h that
  /// a kernel can compute as one without measuring whether that is faster. cudnn: "heuristic" takes the first plan
  /// that cuDNN proposes instead of timing all of them, which compiles faster.
  std::string kernels = "auto";
  /// cudnn and cutlass: "cuda" runs the nodes that they do not support; with "none" such a node is an error.
  std::string fallback = "none";
  /// cuda, cudnn and cutlass: the GPU of the program, independent of the calling threads' current GPU.
  int gpu = kCurrentGpu;
};

/// Which kernel runs a node, for reports and `octet inspect`.
struct LayerInfo {
  std::string name;  ///< the Int8Node's name
  /// "conv1x1_avx512_vnni_m6n64"; "alias" if the output is the input's memory; "merged" if the kernel of its first
  /// input's node computes this node too (a lookup, or a group of fusion.h).
  std::string kernel;
  std::string engine;  ///< the engine that runs the node, if the program may use a fallback; else ""
};

/// A function that is called after each node with its output as the graph stores it: codes [batch, H, W, C] (int8 if
/// out.is_signed(), else uint8), or float32 [batch, H, W, C] for a node with float_output. `data` is valid during the
/// call only.
using NodeTap = std::function<void(int node, const void* data, size_t bytes)>;

/// The caller's memory for the outputs of a run, in the graph's order, each laid out as for a NodeTap. The output of a
/// classifier is float32 logits [batch, classes].
class OutputMemory {
 public:
  OutputMemory(float* logits) : only_(logits) {}  // NOLINT(google-explicit-constructor): a single output
  OutputMemory(std::span<void* const> outputs) : all_(outputs) {}  // NOLINT(google-explicit-constructor)
  size_t size() const { return only_ ? 1 : all_.size(); }
  void* operator[](size_t output) const { return only_ ? only_ : all_[output]; }

 private:
  void* only_ = nullptr;
  std::span<void* const> all_;
};

/// Owns memory for the outputs of up to `batch` images of a graph.
class OutputBuffers {
 public:
  OutputBuffers(const Int8Graph& graph, int batch) {
    for (const int node : graph.outputs) buffers_.emplace_back(graph.nodes[node].image_bytes() * batch);
    for (std::vector<uint8_t>& buffer : buffers_) pointers_.push_back(buffer.data());
  }
  OutputBuffers(OutputBuffers&&) = default;
  OutputBuffers& operator=(OutputBuffers&&) = default;

  OutputMemory memory() const { return OutputMemory(pointers_); }
  /// One output in the graph's order: codes or float32 [batch, H, W, C].
  const std::vector<uint8_t>& operator[](size_t output) const { return buffers_[output]; }
  const std::vector<std::vector<uint8_t>>& all() const { return buffers_; }

 private:
  std::vector<std::vector<uint8_t>> buffers_;
  std::vector<void*> pointers_;  ///< to the data of buffers_
};

/// A compiled network with its own memory. It is not thread-safe: each thread compiles one.
class Program {
 public:
  virtual ~Program() = default;
  /// Computes the outputs of `images`, uint8 [batch, H, W, C], 1 <= batch <= max_batch. Images and outputs lie in host
  /// memory; engines on the GPU copy page-locked memory (PinnedBuffer in src/cuda/memory.h) fastest. Throws
  /// Error(usage) for another batch or another number of outputs than the graph has.
  virtual void run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap = nullptr) = 0;
  /// submit() and collect() are run() in two halves. At most kMostSubmitted batches are under way, collected in the
  /// order of their submission: the GPU copies the images of one batch while it computes the batch before; engines on
  /// the host compute in collect(). `images` stay valid and unchanged until then. Either half throws what run() would,
  /// and Error(usage) for one batch too many or nothing to collect.
  virtual void submit(const uint8_t* images, int batch);
  virtual void collect(const OutputMemory& outputs);
  static constexpr size_t kMostSubmitted = 2;
  /// Does what the first run() of a batch size does once (chooses kernels, captures a CUDA graph), so that a
  /// measurement of run() can exclude it.
  virtual void prepare(int batch) {}
  virtual std::vector<LayerInfo> layers() const = 0;  ///< one a node, in node order
  virtual size_t arena_bytes() const = 0;             ///< bytes planned for activations

  /// Returns the milliseconds of each of `runs` runs on random images that already lie on the device, by device events,
  /// without copying outputs; empty for engines on the host, where run() itself is timed.
  virtual std::vector<double> time_on_device(int batch, int runs) { return {}; }
  /// Returns the median milliseconds of each node run alone, in node order; 0 for a node without a kernel of its own.
  /// The time of nodes that one kernel computes stands at the last of them.
  virtual std::vector<double> time_layers_on_device(int batch, int runs) { return {}; }

 private:
  struct Submitted {
    const uint8_t* images;
    int batch;
  };
  std::deque<Submitted> submitted_;  ///< used by engines on the host
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string_view name() const = 0;
  /// Whether this build on this machine can run the engine at all; engines on the GPU look at the thread's current one.
  virtual Support available() const = 0;
  /// available() for the GPU of that number, or kCurrentGpu; engines on the host ignore the number.
  virtual Support available_on(int gpu) const { return available(); }
  virtual bool on_gpu() const { return false; }  ///< whether it needs a GPU
  /// Whether the engine promises the reference's bytes at every node. If not, differences are counted and reported, but
  /// are no failure.
  virtual bool exact() const { return true; }
  /// Whether the engine itself runs the node. Never throws, never launches anything.
  virtual Support supports(const Int8Graph& graph, int node) const { return {true, ""}; }
  /// Throws what compile() would refuse about the graph, the options and the machine, without compiling: Error(promise)
  /// names the first node that is not supported and why.
  virtual void check(const Int8Graph& graph, const CompileOptions& options) const;
  /// Compiles the graph after check(); throws as check() does.
  virtual std::unique_ptr<Program> compile(const Int8Graph& graph, const CompileOptions& options) const = 0;
};

/// Returns all engines in order of preference, the reference last. They are listed in engines.cpp; nothing registers
/// itself.
const std::vector<const Engine*>& engines();

/// Returns the engines that this machine can run and that are exact(), in order of preference: what "auto" means. Never
/// empty.
std::vector<const Engine*> exact_engines();

/// Returns the engine of that name; throws Error(usage) listing the names.
const Engine& find_engine(std::string_view name);

/// An engine and the GPU that it is to run on.
struct EngineChoice {
  const Engine* engine = nullptr;
  int gpu = kCurrentGpu;
};

/// Parses "cuda" or "cuda:1", engine cuda on GPU 1, as PyTorch names devices. Throws Error(usage) for an unknown
/// engine, for a number after an engine that needs no GPU, and for what is no number. Does not look at the machine.
EngineChoice parse_engine(const std::string& name);

/// The engines that --device allows: all, or those that need no GPU.
enum class EngineDevices { any, cpu };

/// Whether `devices` and this machine allow the engine; if not, the reason names the engine.
Support usable(const Engine& engine, EngineDevices devices);

/// Returns `names` with "auto" replaced by those exact_engines() that are not named themselves. Throws Error(usage)
/// with reason and cure for an engine that is unknown, or that this machine or `devices` exclude. The result is empty
/// only if `names` is.
std::vector<std::string> resolve_engines(const std::vector<std::string>& names,
                                         EngineDevices devices = EngineDevices::any);

/// Returns the first engine that "auto" stands for.
const Engine& preferred_engine(EngineDevices devices = EngineDevices::any);

/// The machine's name for reports: "AMD EPYC ..., 2 cores", "..., 64 cores, of which octet may use 2".
std::string cpu_model();
/// cpu_model(), followed by "; NVIDIA H200" if the build has CUDA and a GPU is usable.
std::string machine_model();

}  // namespace octet
