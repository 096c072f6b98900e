// SPDX-License-Identifier: Apache-2.0
// The files of an int8 network: int8.safetensors, which holds an Int8Graph, and dumps of its codes. Both formats are
// documented in docs/FORMAT.md, and Python's safetensors opens both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/safetensors.h"
#include "src/net/int8_graph.h"

namespace octet {

/// The newest version of the format. All versions from 1 on are read.
inline constexpr int kCheckpointVersion = 13;

/// Returns the version in which this graph is written: the oldest that has all it needs, so that older readers take it.
int checkpoint_version(const Int8Graph& graph);

/// Validates the graph and writes it atomically. Equal graphs give equal bytes.
void write_checkpoint(const std::string& path, const Int8Graph& graph);

/// Reads and validates a graph. Throws Error(data) with the path and what is wrong; for an unknown format version also
/// what to do.
Int8Graph read_checkpoint(const std::string& path);

/// Reads a checkpoint that is in memory; `name` stands for the path in messages.
Int8Graph parse_checkpoint(const std::byte* data, size_t size, const std::string& name);

/// Validates the graph and returns the bytes of its file.
std::string serialize_checkpoint(const Int8Graph& graph);

/// Returns the checkpoint's JSON document: all of the graph except its tensors.
std::string write_checkpoint_json(const Int8Graph& graph);

/// Reads the document into a graph whose nodes have no tensors yet. Throws Error(data), also for an unknown format
/// version and for an operator that is newer than the version.
Int8Graph read_checkpoint_json(std::string_view text, const std::string& where);

/// Returns the fewest bits, 2 to 8, that hold every code in two's complement.
int code_bits(const std::vector<int8_t>& codes);

/// Returns ceil(count * bits / 8).
size_t packed_bytes(size_t count, int bits);

/// Packs codes of 2..8 bits, at least code_bits(codes), without gaps. Code i is bits [i * bits, (i + 1) * bits) of a
/// bit stream, lowest bit first, in two's complement; bit j of the stream is bit j % 8 of byte j / 8, and the rest of
/// the last byte is 0.
std::vector<uint8_t> pack_codes(const std::vector<int8_t>& codes, int bits);

/// Undoes pack_codes(). Throws Error(data) if there are not packed_bytes(count, bits) bytes or the rest of the last
/// byte is not 0.
std::vector<int8_t> unpack_codes(const std::vector<uint8_t>& bytes, size_t count, int bits);

/// Collects the codes of every node for some images and writes them to a file, for the witness
/// (tools/verify_checkpoint.py --against FILE) and for debugging.
class CodeDump {
 public:
  explicit CodeDump(const Int8Graph& graph);

  /// Adds the images of the batch that runs next: uint8 [batch, H, W, C].
  void add_images(const uint8_t* pixels, int batch);

  /// Adds what an engine's tap gives for one node and the batch: codes or float32 [batch, H, W, C].
  void add(int node, const void* data, size_t bytes);

  void write(const std::string& path) const;  ///< throws Error(data)

 private:
  void append(const std::string& key, const void* data, size_t bytes);

  std::vector<std::string> keys_;  ///< of each node's tensor
  int images_ = 0;
  TensorFile file_;
};

}  // namespace octet
