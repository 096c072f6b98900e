// int8 on x86 processors: packed convolutions, planned memory, one thread pool. AVX-512 VNNI, AVX2 and portable paths
// give the same bytes; CompileOptions::kernels forces one.
#pragma once

#include "src/engine/engine.h"

namespace octet {

class CpuEngine final : public Engine {
 public:
  std::string_view name() const override { return "cpu"; }
  Support available() const override { return {true, ""}; }  ///< the portable path runs everywhere
  Support supports(const Int8Graph& graph, int node) const override;
  /// Also throws Error(usage) when options.kernels is unknown or names a path that this machine cannot run.
  std::unique_ptr<Program> compile(const Int8Graph& graph, const CompileOptions& options) const override;
};

}  // namespace octet
