// Whether a library that was loaded is one that octet was compiled for.
#pragma once

#include <cstddef>
#include <string>

namespace octet {

struct LibraryVersion {
  int major = 0, minor = 0, patch = 0;

  /// From NVIDIA's single number: 91900 is 9.19.0.
  static LibraryVersion from_number(size_t number);
  std::string text() const;  ///< "9.19.0"
};

struct LoadedLibrary {
  std::string name;   ///< "cuDNN"
  std::string wheel;  ///< what pip installs it by
  LibraryVersion loaded, compiled_for;
};

/// "" or why not, with both versions and the cure. Within a major version NVIDIA keeps what older headers declare, so
/// that a newer library will do; an older minor version may lack functions and kernels.
std::string version_fault(const LoadedLibrary& library);

}  // namespace octet
