#include "src/common/error.h"
#include "src/engine/cpu/cpu_engine.h"
#include "src/engine/engine.h"
#include "src/engine/missing_engine.h"
#include "src/engine/reference_engine.h"

#if OCTET_CUDA
#include "src/engine/cuda/cuda_engine.h"
#include "src/engine/cudnn/cudnn_engine.h"
#include "src/engine/cutlass/cutlass_engine.h"
#else
#include "src/engine/engine_choice.h"
#include "src/engine/time_convolutions.h"
#endif

namespace octet {

const std::vector<const Engine*>& engines() {
  static const CpuEngine cpu;
  static const ReferenceEngine reference;
#if OCTET_CUDA
  static const CudaEngine cuda;
  static const CudnnEngine cudnn;
  static const CutlassEngine cutlass;
#else
  static const MissingEngine cuda("cuda"), cudnn("cudnn"), cutlass("cutlass");
#endif
  static const std::vector<const Engine*> all = {&cuda, &cudnn, &cutlass, &cpu, &reference};
  return all;
}

std::vector<const Engine*> exact_engines() {
  std::vector<const Engine*> usable;
  for (const Engine* engine : engines()) {
    if (engine->exact() && engine->available().ok) usable.push_back(engine);
  }
  return usable;
}

const Engine& find_engine(std::string_view name) {
  std::string names;
  for (const Engine* engine : engines()) {
    if (engine->name() == name) return *engine;
    names += (names.empty() ? "" : ", ") + std::string(engine->name());
  }
  throw usage_error("unknown engine '" + std::string(name) + "'; engines: " + names);
}

#if !OCTET_CUDA
TimedConvolutions time_convolutions(const Int8Graph&, const std::vector<int>&, const TimingOptions&) {
  resolve_engines({"cuda", "cudnn"});  // throws: this build has neither
  return {};
}
#endif

}  // namespace octet
