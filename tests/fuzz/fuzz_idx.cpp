// SPDX-License-Identifier: Apache-2.0
// A pair of idx files, plain or gzipped: the first byte says which share of the input is the images file.
#include <cstdlib>

#include "src/base/error.h"
#include "src/data/memory_dataset.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const size_t images_size = (size - 1) * data[0] / 255;
  const octet::MemoryFile images(data + 1, images_size), labels(data + 1 + images_size, size - 1 - images_size);
  try {
    const octet::MemoryImages read = octet::read_idx_pair(images.path(), labels.path(), 10);
    if (read.labels.empty() || read.pixels.size() != read.labels.size() * 28 * 28) std::abort();
  } catch (const octet::Error& error) {
    if (error.code() != octet::ExitCode::data) std::abort();
  }
  return 0;
}
