// safetensors files: 8 bytes of header length (little endian), a JSON header, the tensors. Format:
// https://github.com/huggingface/safetensors. The reader trusts nothing: every offset, size, dtype and shape is checked
// against the file, and nothing larger than the file is ever allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace octet {

enum class DType { f32, f64, f16, bf16, i64, i32, i8, u8, boolean };

struct TensorData {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;  ///< row-major, little endian
};

struct TensorFile {
  std::map<std::string, TensorData> tensors;
  std::map<std::string, std::string> metadata;
};

size_t dtype_size(DType dtype);

/// Reads a whole file. Throws Error(data) with the path and what is wrong (truncated, overlapping, unknown dtype, ...).
TensorFile read_safetensors(const std::string& path);

/// The same from memory (fuzzing, tests); `name` stands for the path in messages.
TensorFile parse_safetensors(const std::byte* data, size_t size, const std::string& name);

/// Writes atomically: a temporary file in the same folder, fsync, rename. Keys in sorted order, data aligned to 64
/// bytes, so that equal contents give equal files. Throws Error(data) (disk full, folder missing) and leaves the old
/// file untouched.
void write_safetensors(const std::string& path, const TensorFile& file);

}  // namespace octet
