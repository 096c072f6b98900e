// Engines run an Int8Graph. No LibTorch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/graph/int8_graph.h"

namespace octet {

struct Support {
  bool ok = false;
  std::string reason;  ///< "C=20: needs a multiple of 16"
};

struct CompileOptions {
  int max_batch = 1;  ///< memory is planned for this many images
  int threads = 0;    ///< 0: all cores
  std::string kernels =
      "auto";  ///< cpu engine: "auto", "avx512_vnni", "avx2", "portable"; one the machine lacks is an error
};

/// What ran where, for reports and `octet inspect`.
struct LayerInfo {
  std::string name;    ///< of the Int8Node
  std::string kernel;  ///< "conv1x1_avx512_vnni_m6n64"
};

/// Called after each node with the output's codes as stored in the graph: bytes [batch, H, W, C] (int8 or uint8 by
/// out.is_signed()), or float32 [batch, classes] for the node with float_output. Valid during the call only.
using NodeTap = std::function<void(int node, const void* data, size_t bytes)>;

/// A compiled network with its own memory; not thread-safe, make one a thread.
class Program {
 public:
  virtual ~Program() = default;
  /// images: uint8 [batch, H, W, C]; logits: float32 [batch, classes]; 1 <= batch <= max_batch.
  virtual void run(const uint8_t* images, int batch, float* logits, const NodeTap& tap = nullptr) = 0;
  virtual std::vector<LayerInfo> layers() const = 0;
  virtual size_t arena_bytes() const = 0;  ///< planned activation memory
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string_view name() const = 0;
  virtual Support available() const = 0;  ///< can this machine run it at all (for doctor)
  virtual Support supports(const Int8Graph& graph, int node) const = 0;  ///< never throws, never launches
  /// Throws Error(promise) naming the first node it does not support and why.
  virtual std::unique_ptr<Program> compile(const Int8Graph& graph, const CompileOptions& options) const = 0;
};

/// Written order is preference; reference last. Nothing registers itself.
const std::vector<const Engine*>& engines();

/// The engine of that name; throws Error(usage) listing the names.
const Engine& find_engine(std::string_view name);

}  // namespace octet
