// Int8Graph <> int8.safetensors. The format is documented in src/graph/README.md; Python's safetensors opens it:
// tensors
// "<node>.weight" I8 (U8 where packed), "<node>.multiplier", "<node>.bias", "<node>.weight_scale" F32, "<node>.table"
// I8 or U8, "<node>.exponentials" I32; metadata "octet" holds the rest as one JSON document.
#pragma once

#include <cstddef>
#include <string>

#include "src/graph/int8_graph.h"

namespace octet {

/// The newest format version. All from 1 on are read.
inline constexpr int kCheckpointVersion = 9;

/// The version that this graph is written in: the oldest that has all it needs, so that older readers take it.
int checkpoint_version(const Int8Graph& graph);

/// Validates and writes atomically. The same graph gives the same bytes.
void write_checkpoint(const std::string& path, const Int8Graph& graph);

/// Reads and validates. Throws Error(data): path, what is wrong, and for another format version what to do.
Int8Graph read_checkpoint(const std::string& path);

/// The same from and to memory; `name` stands for the path in messages.
Int8Graph parse_checkpoint(const std::byte* data, size_t size, const std::string& name);
std::string serialize_checkpoint(const Int8Graph& graph);

}  // namespace octet
