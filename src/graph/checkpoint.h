// Int8Graph <> int8.safetensors. Layout of the file: recipes-independent, documented in src/graph/README.md, opened by
// Python's safetensors: tensors "<node>.weight" I8, "<node>.multiplier", "<node>.bias", "<node>.weight_scale" F32;
// metadata "octet" holds the rest as one JSON document.
#pragma once

#include <string>

#include "src/graph/int8_graph.h"

namespace octet {

inline constexpr int kCheckpointVersion = 1;

/// Validates and writes atomically. The same graph gives the same bytes.
void write_checkpoint(const std::string& path, const Int8Graph& graph);

/// Reads and validates. Throws Error(data): path, what is wrong, and for another format version what to do.
Int8Graph read_checkpoint(const std::string& path);

}  // namespace octet
