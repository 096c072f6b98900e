#include "src/engine/cudnn/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "src/common/error.h"
#include "src/cuda/device.h"

// Declared by cudnn_frontend (NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING): where it looks functions of cuDNN up.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace octet {
namespace {

struct Libraries {
  Support support;
  std::string version;
  void* cublaslt = nullptr;
};

/// Null with a reason when the library cannot be loaded.
void* load(const char* name, const char* wheel, Support& support) {
  void* handle = dlopen(name, RTLD_NOW);
  if (!handle) {
    support = {false,
               fmt::format("{}; install it (pip install {}) and name its folder in LD_LIBRARY_PATH", dlerror(), wheel)};
  }
  return handle;
}

Libraries load_all() {
  Libraries all{{true, ""}};
  if (!gpu_status().usable) return {{false, gpu_status().reason}};
  // cudnn_frontend loads the CUDA runtime itself; octet may have been linked with a static one.
  if (!load("libcudart.so.13", "nvidia-cuda-runtime", all.support)) return all;
  all.cublaslt = load("libcublasLt.so.13", "nvidia-cublas", all.support);
  if (!all.cublaslt) return all;
  cudnn_frontend::cudnn_dlhandle = load("libcudnn.so.9", "nvidia-cudnn-cu13", all.support);
  if (!cudnn_frontend::cudnn_dlhandle) return all;
  const auto version = reinterpret_cast<size_t (*)()>(dlsym(cudnn_frontend::cudnn_dlhandle, "cudnnGetVersion"));
  if (!version) {
    all.support = {false, "libcudnn.so.9 has no cudnnGetVersion: not cuDNN"};
    return all;
  }
  const size_t number = version();  // 91900 for 9.19.0
  all.version = fmt::format("cuDNN {}.{}.{}", number / 10000, number / 100 % 100, number % 100);
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

}  // namespace octet
