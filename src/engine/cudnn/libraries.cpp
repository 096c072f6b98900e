#include "src/engine/cudnn/libraries.h"

#include <cublasLt.h>
#include <cudnn_version.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "src/common/error.h"
#include "src/engine/cudnn/library_version.h"

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

struct Library {
  const char *file, *name, *wheel;
  const char* asks_version;  ///< the function that returns its number
  size_t compiled_for;
};
constexpr Library kCublasLt{"libcublasLt.so.13", "cuBLASLt", "nvidia-cublas", "cublasLtGetVersion", CUBLAS_VERSION};
constexpr Library kCudnn{"libcudnn.so.9", "cuDNN", "nvidia-cudnn-cu13", "cudnnGetVersion", CUDNN_VERSION};

/// load() of a library whose version fits, which `version` receives.
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

}  // namespace octet
