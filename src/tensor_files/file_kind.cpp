#include "src/tensor_files/file_kind.h"

#include <cstdint>
#include <cstring>
#include <string_view>

namespace octet {

bool is_onnx(const std::byte* data, size_t size) {
  if (size < 3) return false;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(data[i]); };
  constexpr uint8_t kVersion = 0x08;       // field 1, a number: ir_version, 3 and more
  constexpr uint8_t kModelVersion = 0x28;  // field 5, a number; of the fields 2 to 8 the others are messages or texts
  const bool text = byte(2) % 8 == 2 && byte(2) / 8 >= 2 && byte(2) / 8 <= 8;
  return byte(0) == kVersion && byte(1) >= 1 && byte(1) < 0x80 && (text || byte(2) == kModelVersion);
}

bool is_pytorch(const std::byte* data, size_t size) {
  const auto begins = [&](std::string_view text) {
    return size >= text.size() && std::memcmp(data, text.data(), text.size()) == 0;
  };
  return begins({"PK\x03\x04", 4}) || begins({"\x80\x02\x8a\x0a", 4});  // the pickle begins with a long, its magic
}

bool is_safetensors(const std::byte* data, size_t size) {
  uint64_t header = 0;
  if (size <= sizeof(header)) return false;
  std::memcpy(&header, data, sizeof(header));
  return header <= size - sizeof(header) && data[sizeof(header)] == std::byte{'{'};
}

}  // namespace octet
