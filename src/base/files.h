// SPDX-License-Identifier: Apache-2.0
// Whole files: reading, atomic writing, hashes, what kind of file one is; and a folder that only one process works in.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "src/base/names.h"  // nearest(), which recipes and commands still find here

namespace octet {

/// Reads a regular file to its end. Throws Error(data) naming the path and the reason.
std::string read_file(const std::string& path);

/// Writes a file atomically: a temporary file `path.tmp.PID.N` in the same folder, fsync, rename. If several threads or
/// processes write one path at once, the file holds the whole content of one of them. On a failure the old file stays,
/// the temporary file is removed, and Error(data) says why ("No space left on device").
void write_file_atomically(const std::string& path, std::string_view contents);

/// Throws Error(data) if the folder of a file that is to be written does not exist, or `file` is a folder. Called
/// before long work.
void require_place_for(const std::string& file);

/// Returns the SHA-256 of `data` as 64 hexadecimal digits (FIPS 180-4).
std::string sha256(std::string_view data);

// The kind of a file by its first bytes, for the error when a file is given where another kind is expected.

/// Whether the bytes begin like an ONNX model: with its ir_version and the next field of its protobuf message
/// (onnx.ai/onnx/repo-docs/IR.md).
bool is_onnx(const std::byte* data, size_t size);

/// Whether the bytes begin like a safetensors file: with the length of a header that fits the file and is a JSON
/// object.
bool is_safetensors(const std::byte* data, size_t size);

/// Whether the bytes begin like a file of torch.save: a zip archive or, before PyTorch 1.6, a pickle of protocol 2.
bool is_pytorch(const std::byte* data, size_t size);

/// Locks a folder until the object is destroyed or the process ends, however it ends. It leaves no file behind
/// (flock(2) on the folder itself).
class FolderLock {
 public:
  /// Throws Error(usage) if another process holds the lock. Where the file system has no locks, nothing is locked and
  /// nothing is thrown.
  explicit FolderLock(const std::string& folder);

  enum class Taken { no, yes, unknown };
  /// Returns whether another process holds the lock; unknown if the folder cannot be opened or its file system has no
  /// locks.
  static Taken taken(const std::string& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  int descriptor_;
};

}  // namespace octet
