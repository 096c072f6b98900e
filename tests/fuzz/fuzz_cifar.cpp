// SPDX-License-Identifier: Apache-2.0
// CIFAR records of both layouts.
#include <cstdlib>

#include "src/base/error.h"
#include "src/data/memory_dataset.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const octet::CifarLayout& layout : {octet::CifarLayout{1, 10}, octet::CifarLayout{2, 100}}) {
    octet::MemoryImages images;
    try {
      octet::append_cifar_records(bytes, layout, "fuzz.bin", images);
      if (images.pixels.size() != images.labels.size() * 3072) std::abort();
    } catch (const octet::Error& error) {
      if (error.code() != octet::ExitCode::data) std::abort();
    }
  }
  return 0;
}
