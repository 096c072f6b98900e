// SPDX-License-Identifier: Apache-2.0
// The index of a tar archive, and the contents it points at.
#include <cstdlib>

#include "src/base/error.h"
#include "src/data/file_tree.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const octet::MemoryFile file(data, size);
  try {
    const octet::TarFile tar(file.path());
    for (const octet::TarMember& member : tar.members()) tar.read(member.offset, member.size);
  } catch (const octet::Error& error) {
    if (error.code() != octet::ExitCode::data) std::abort();
  }
  return 0;
}
