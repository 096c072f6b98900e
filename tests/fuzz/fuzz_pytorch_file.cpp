// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: tensors together not larger than twice the file, or an octet::Error.
#include <cstdlib>

#include "src/base/error.h"
#include "src/net/import/pytorch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace octet;
  try {
    size_t total = 0;
    for (const auto& [name, tensor] :
         parse_pytorch_file(reinterpret_cast<const std::byte*>(data), size, "fuzz").tensors) {
      total += tensor.bytes.size();
    }
    if (total > 2 * size) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
