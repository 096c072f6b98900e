// SPDX-License-Identifier: Apache-2.0
// Engine cudnn: convolutions by cuDNN's graph API, linears by cuBLASLt; and how these libraries are loaded.
#include <cublasLt.h>
#include <cudnn_version.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "kernels/conv/conv2d.h"
#include "src/base/error.h"
#include "src/cuda/device.h"
#include "src/engine/peers/peer.h"
#include "src/engine/support.h"

// cudnn_frontend declares it (NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING) and looks cuDNN's functions up in it.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace octet {
namespace {

class CudnnEngine final : public PeerEngine {
 public:
  std::string_view name() const override { return "cudnn"; }
  /// Also whether the loader finds cuDNN 9 and cuBLASLt 13.
  Support available_on(int gpu) const override {
    const GpuStatus& status = gpu_status(gpu);
    return status.usable ? cudnn_libraries() : Support{false, status.reason};
  }

 protected:
  std::string library() const override { return "cuDNN"; }
  std::vector<std::string> kernel_choices() const override { return {"auto", "heuristic"}; }

  std::string fault(const Int8Graph& graph, int node) const override {
    const Int8Node& n = graph.nodes[node];
    const auto few_bytes = [](const char* name, int channels) {
      return fmt::format("{}={}: cuDNN has no tensor-core int8 kernel for pixels of fewer than {} bytes", name,
                         channels, kPeerLanes);
    };
    if (const int channels = graph.nodes[n.inputs[0]].shape.c; !fills_lanes(channels)) return few_bytes("C", channels);
    if (n.op == Int8Op::linear) return "";
    if (std::string fault = padding_fault(n.window); !fault.empty()) return fault;
    if (n.groups != 1) {
      return fmt::format("groups={}: cuDNN has no depthwise int8 convolution, and grouped ones are not built here",
                         n.groups);
    }
    if (n.float_output) return "a convolution that writes float logits";
    return fills_lanes(n.shape.c) ? "" : few_bytes("K", n.shape.c);
  }

  std::unique_ptr<CudaStep> make_step(const Lowering& lowering, int node,
                                      const CompileOptions& options) const override {
    return lowering.graph.nodes[node].op == Int8Op::linear ? make_cudnn_linear_step(lowering, node)
                                                           : make_cudnn_conv_step(lowering, node, every_plan(options));
  }

  /// Builds all plans for max_batch images on all cores, before the steps ask for them one by one.
  void prepare(const Int8Graph& graph, const CompileOptions& options) const override {
    const Lowering lowering{graph, kernels::cuda_channel_stride};
    std::vector<FusedConvSpec> specs;
    for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
      if (graph.nodes[node].op != Int8Op::conv2d || !supports(graph, node).ok) continue;
      specs.push_back(fused_conv_spec(lowering, node, options.max_batch));
      specs.back().every_plan = every_plan(options);
    }
    build_plans(specs);
  }

 private:
  static bool every_plan(const CompileOptions& options) { return options.kernels == "auto"; }
};

}  // namespace

const Engine& cudnn_engine() {
  static const CudnnEngine engine;
  return engine;
}

namespace {

struct Libraries {
  Support support;
  std::string version;
  void* cublaslt = nullptr;
};

/// Loads a library; returns null and sets the reason if that fails.
void* load(const char* name, const char* wheel, Support& support) {
  void* handle = dlopen(name, RTLD_NOW);
  if (!handle) {
    support = {false,
               fmt::format("{}; install it (pip install {}) and name its folder in LD_LIBRARY_PATH", dlerror(), wheel)};
  }
  return handle;
}

struct Library {
  const char *file, *name, *wheel;
  const char* asks_version;  ///< the function that returns its number
  size_t compiled_for;
};
constexpr Library kCublasLt{"libcublasLt.so.13", "cuBLASLt", "nvidia-cublas", "cublasLtGetVersion", CUBLAS_VERSION};
constexpr Library kCudnn{"libcudnn.so.9", "cuDNN", "nvidia-cudnn-cu13", "cudnnGetVersion", CUDNN_VERSION};

/// Loads a library and sets `version`; returns null and sets the reason if that fails or octet cannot use the version.
void* load(const Library& library, Support& support, LibraryVersion& version) {
  void* handle = load(library.file, library.wheel, support);
  if (!handle) return nullptr;
  const auto number = reinterpret_cast<size_t (*)()>(dlsym(handle, library.asks_version));
  if (!number) {
    support = {false, fmt::format("{} has no {}: not {}", library.file, library.asks_version, library.name)};
    return nullptr;
  }
  version = LibraryVersion::from_number(number());
  const std::string fault =
      version_fault({library.name, library.wheel, version, LibraryVersion::from_number(library.compiled_for)});
  if (fault.empty()) return handle;
  support = {false, fault};
  return nullptr;
}

Libraries load_all() {
  Libraries all{{true, ""}};
  // cudnn_frontend loads the CUDA runtime itself; octet may have been linked with a static one.
  if (!load("libcudart.so.13", "nvidia-cuda-runtime", all.support)) return all;
  LibraryVersion version;
  all.cublaslt = load(kCublasLt, all.support, version);
  if (!all.cublaslt) return all;
  cudnn_frontend::cudnn_dlhandle = load(kCudnn, all.support, version);
  if (!cudnn_frontend::cudnn_dlhandle) return all;
  all.version = fmt::format("{} {}", kCudnn.name, version.text());
  return all;
}

const Libraries& libraries() {
  static const Libraries kLibraries = load_all();
  return kLibraries;
}

}  // namespace

const Support& cudnn_libraries() { return libraries().support; }

const std::string& cudnn_version() { return libraries().version; }

void* cublaslt_function(const char* name) {
  void* function = dlsym(libraries().cublaslt, name);
  if (!function) throw promise_error(std::string("libcublasLt.so.13 has no ") + name);
  return function;
}

LibraryVersion LibraryVersion::from_number(size_t number) {
  return {static_cast<int>(number / 10000), static_cast<int>(number / 100 % 100), static_cast<int>(number % 100)};
}

std::string LibraryVersion::text() const { return fmt::format("{}.{}.{}", major, minor, patch); }

std::string version_fault(const LoadedLibrary& library) {
  const LibraryVersion &loaded = library.loaded, &wanted = library.compiled_for;
  if (loaded.major == wanted.major && loaded.minor >= wanted.minor) return "";
  return fmt::format(
      "{} {} was loaded, octet was compiled for {} and needs {}.{} or a newer {}.x; install it (pip install "
      "\"{}>={}.{},<{}\") and name its folder first in LD_LIBRARY_PATH",
      library.name, loaded.text(), wanted.text(), wanted.major, wanted.minor, wanted.major, library.wheel, wanted.major,
      wanted.minor, wanted.major + 1);
}

}  // namespace octet
