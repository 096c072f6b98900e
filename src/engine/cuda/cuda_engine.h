// int8 on NVIDIA GPUs from Ampere on: octet's own kernels, chosen by measurement; the reference's bytes at every node.
#pragma once

#include "src/engine/engine.h"

namespace octet {

class CudaEngine final : public Engine {
 public:
  std::string_view name() const override { return "cuda"; }
  Support available() const override { return available_on(kCurrentGpu); }
  Support available_on(int gpu) const override;
  bool on_gpu() const override { return true; }
  Support supports(const Int8Graph& graph, int node) const override;
  /// Also throws Error(promise) when the GPU has no memory for options.max_batch images (the message says which batch
  /// would fit), or when no kernel that options.kernels names runs a convolution of the graph.
  std::unique_ptr<Program> compile(const Int8Graph& graph, const CompileOptions& options) const override;
};

}  // namespace octet
