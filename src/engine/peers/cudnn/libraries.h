// SPDX-License-Identifier: Apache-2.0
// cuDNN and cuBLASLt are loaded at their first use, so that octet also starts where they are missing.
#pragma once

#include <cstddef>
#include <string>

#include "src/engine/engine.h"

namespace octet {

/// Loads the libraries once and returns whether they can be used, or the fault and its cure. Never throws.
const Support& cudnn_libraries();

/// Returns for example "cuDNN 9.19.0", after cudnn_libraries() was ok.
const std::string& cudnn_version();

/// Returns the address of a function of libcublasLt, after cudnn_libraries() was ok. Throws Error(promise) if the
/// library lacks it.
void* cublaslt_function(const char* name);

struct LibraryVersion {
  int major = 0, minor = 0, patch = 0;

  /// Splits NVIDIA's single number: 91900 is 9.19.0.
  static LibraryVersion from_number(size_t number);
  std::string text() const;  ///< "9.19.0"
};

struct LoadedLibrary {
  std::string name;   ///< for example "cuDNN"
  std::string wheel;  ///< the package that pip installs it from
  LibraryVersion loaded, compiled_for;
};

/// Returns "" if octet can use the loaded library, else both versions and the cure. Within a major version NVIDIA keeps
/// what older headers declare, so a newer library is fine; an older minor version may lack functions and kernels.
std::string version_fault(const LoadedLibrary& library);

}  // namespace octet
