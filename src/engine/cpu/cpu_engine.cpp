#include "src/engine/cpu/cpu_engine.h"

#include "src/common/error.h"
#include "src/engine/cpu/cpu_program.h"
#include "src/engine/cpu/unsigned_edges.h"

namespace octet {
namespace {

kernels::CpuIsa choose_isa(const std::string& name) {
  if (name == "auto") return kernels::best_cpu_isa();
  std::string names = "auto";
  for (const kernels::CpuIsa isa : {kernels::CpuIsa::avx512_vnni, kernels::CpuIsa::avx2, kernels::CpuIsa::portable}) {
    names += ", " + std::string(kernels::cpu_isa_name(isa));
    if (name != kernels::cpu_isa_name(isa)) continue;
    if (kernels::cpu_isa_available(isa)) return isa;
    throw usage_error("engine cpu: kernels '" + name +
                      "' need instructions that this processor lacks; the best it has is '" +
                      std::string(kernels::cpu_isa_name(kernels::best_cpu_isa())) + "'");
  }
  throw usage_error("engine cpu: unknown kernels '" + name + "'; allowed: " + names);
}

}  // namespace

Support CpuEngine::supports(const Int8Graph&, int) const { return {true, ""}; }

std::unique_ptr<Program> CpuEngine::compile(const Int8Graph& graph, const CompileOptions& options) const {
  const kernels::CpuIsa isa = choose_isa(options.kernels);
  check(graph, options);
  return std::make_unique<CpuProgram>(graph, options, isa);
}

}  // namespace octet
