// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: a valid Int8Graph that writes back to an equal checkpoint, or an octet::Error.
#include <cstdlib>

#include "src/base/error.h"
#include "src/net/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace octet;
  Int8Graph graph;
  try {
    graph = parse_checkpoint(reinterpret_cast<const std::byte*>(data), size, "fuzz");
  } catch (const Error&) {
    return 0;
  }
  const std::string bytes = serialize_checkpoint(graph);
  const Int8Graph again = parse_checkpoint(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "again");
  if (serialize_checkpoint(again) != bytes) std::abort();
  for (int c = 0; c < graph.input_shape().c; ++c) input_table(graph, c);
  return 0;
}
