// SPDX-License-Identifier: Apache-2.0
#include "src/engine/peers/cudnn/libraries.h"

#include <cublasLt.h>
#include <cudnn_version.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "src/base/error.h"

// cudnn_frontend declares it (NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING) and looks cuDNN's functions up in it.
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
