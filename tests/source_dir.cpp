// SPDX-License-Identifier: Apache-2.0
#include "tests/source_dir.h"

#include <cstdlib>
#include <filesystem>

namespace octet {

std::string source_dir() { return OCTET_SOURCE_DIR; }

std::string shared_data() {
  const char* set = std::getenv("OCTET_SHARED_DATA");
  const std::string folder = set != nullptr ? set : source_dir() + "/../shared/data";
  return std::filesystem::is_directory(folder) ? folder : "";
}

}  // namespace octet
