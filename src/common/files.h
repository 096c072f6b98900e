// Whole files: reading, atomic writing, hashes; and the nearest of some words, for messages.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace octet {

/// Reads a whole regular file. Throws Error(data) naming path and reason.
std::string read_file(const std::string& path);

/// Writes path atomically: `path.tmp.PID.N` beside it, fsync, rename. Threads and processes that write one path at a
/// time each have a temporary file of their own: what stays is whole, and one of theirs. On any failure the old file
/// stays, the temporary goes, and Error(data) says why ("No space left on device").
void write_file_atomically(const std::string& path, std::string_view contents);

/// SHA-256 as 64 hex digits (FIPS 180-4).
std::string sha256(std::string_view data);

/// Of candidate(0 .. count - 1), the one with the least edit distance to `word`, or "" when none is near (distance >
/// 1/2 of the word).
std::string nearest(std::string_view word, const std::function<std::string_view(size_t)>& candidate, size_t count);

}  // namespace octet
