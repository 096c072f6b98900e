// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: a TensorFile that writes back to an equal one, or an octet::Error.
#include <cstdlib>

#include "src/base/error.h"
#include "src/base/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace octet;
  TensorFile file;
  try {
    file = parse_safetensors(reinterpret_cast<const std::byte*>(data), size, "fuzz");
  } catch (const Error&) {
    return 0;
  }
  const std::string bytes = serialize_safetensors(file);
  const TensorFile again = parse_safetensors(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "again");
  if (again.tensors != file.tensors || again.metadata != file.metadata) std::abort();
  return 0;
}
