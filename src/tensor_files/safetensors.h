// safetensors files: 8 bytes of header length (little endian), a JSON header, the tensors. Format:
// https://github.com/huggingface/safetensors. The reader trusts nothing: every offset, size, dtype and shape is checked
// against the file, and nothing larger than the file is ever allocated.
#pragma once

#include <cstddef>
#include <string>

#include "src/tensor_files/tensor_data.h"

namespace octet {

/// Reads a whole file. Throws Error(data) with the path and what is wrong (truncated, overlapping, unknown dtype, ...).
TensorFile read_safetensors(const std::string& path);

/// The same from memory (fuzzing, tests); `name` stands for the path in messages.
TensorFile parse_safetensors(const std::byte* data, size_t size, const std::string& name);

/// The file's bytes. Header keys in sorted order; data in order of element size (largest first), then name, without
/// holes, starting at a multiple of 64 bytes: equal contents give equal files and every tensor is aligned to its
/// element size. Throws Error(data) if a tensor's bytes do not fit its shape or a name is not UTF-8.
std::string serialize_safetensors(const TensorFile& file);

/// serialize_safetensors, written atomically: a temporary file in the same folder, fsync, rename. Throws Error(data)
/// (disk full, folder missing) and leaves the old file untouched.
void write_safetensors(const std::string& path, const TensorFile& file);

}  // namespace octet
