// SPDX-License-Identifier: Apache-2.0
// The Python whose packages some tests compare octet with.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/source_dir.h"

namespace octet::test {

/// Returns $OCTET_PYTHON, the one of tools/setup.sh, or python3.
inline std::string python() {
  const char* set = std::getenv("OCTET_PYTHON");
  if (set != nullptr) return set;
  const std::string from_setup = source_dir() + "/.deps/venv/bin/python";
  return std::filesystem::exists(from_setup) ? from_setup : "python3";
}

/// Whether that Python has a package.
inline bool python_has(const std::string& package) {
  return std::system((python() + " -c 'import " + package + "' 2>/dev/null").c_str()) == 0;
}

}  // namespace octet::test
