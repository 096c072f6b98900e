#include "src/engine/cudnn/library_version.h"

#include <fmt/format.h>

namespace octet {

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
