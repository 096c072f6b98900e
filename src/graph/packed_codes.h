// Codes of few bits without gaps between them, as a checkpoint stores weights of fewer than 8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace octet {

/// The fewest bits, 2 to 8, that hold every code in two's complement.
int code_bits(const std::vector<int8_t>& codes);

/// ceil(count * bits / 8).
size_t packed_bytes(size_t count, int bits);

/// Code i in bits [i * bits, (i + 1) * bits) of the stream, the lowest bit first, in two's complement; bit j of the
/// stream is bit j % 8 of byte j / 8. The rest of the last byte is 0. bits: 2..8, at least code_bits(codes).
std::vector<uint8_t> pack_codes(const std::vector<int8_t>& codes, int bits);

/// The inverse. Throws Error(data) when `bytes` are not packed_bytes(count, bits) or the rest of the last is not 0.
std::vector<int8_t> unpack_codes(const std::vector<uint8_t>& bytes, size_t count, int bits);

}  // namespace octet
