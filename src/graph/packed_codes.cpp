#include "src/graph/packed_codes.h"

#include <fmt/format.h>

#include "src/common/error.h"

namespace octet {

int code_bits(const std::vector<int8_t>& codes) {
  int bits = 2;
  for (const int code : codes) {
    while (code < -(1 << (bits - 1)) || code >= 1 << (bits - 1)) ++bits;
  }
  return bits;
}

size_t packed_bytes(size_t count, int bits) { return (count * static_cast<size_t>(bits) + 7) / 8; }

std::vector<uint8_t> pack_codes(const std::vector<int8_t>& codes, int bits) {
  std::vector<uint8_t> bytes;
  bytes.reserve(packed_bytes(codes.size(), bits));
  unsigned waiting = 0;
  int count = 0;  // of the bits in `waiting`
  for (const int8_t code : codes) {
    waiting |= (static_cast<unsigned>(code) & ((1u << bits) - 1)) << count;
    for (count += bits; count >= 8; count -= 8, waiting >>= 8) bytes.push_back(static_cast<uint8_t>(waiting));
  }
  if (count > 0) bytes.push_back(static_cast<uint8_t>(waiting));
  return bytes;
}

std::vector<int8_t> unpack_codes(const std::vector<uint8_t>& bytes, size_t count, int bits) {
  if (bytes.size() != packed_bytes(count, bits)) {
    throw data_error(
        fmt::format("{} codes of {} bits take {} bytes, not {}", count, bits, packed_bytes(count, bits), bytes.size()));
  }
  std::vector<int8_t> codes;
  codes.reserve(count);
  unsigned waiting = 0;
  int held = 0;  // bits in `waiting`
  for (const uint8_t byte : bytes) {
    waiting |= static_cast<unsigned>(byte) << held;
    for (held += 8; held >= bits && codes.size() < count; held -= bits, waiting >>= bits) {
      const int code = static_cast<int>(waiting & ((1u << bits) - 1)), sign = 1 << (bits - 1);
      codes.push_back(static_cast<int8_t>((code ^ sign) - sign));
    }
  }
  if (waiting != 0) throw data_error("bits behind the last code");
  return codes;
}

}  // namespace octet
