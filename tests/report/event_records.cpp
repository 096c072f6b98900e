// SPDX-License-Identifier: Apache-2.0
#include "tests/report/event_records.h"

#include <cstring>
#include <stdexcept>

namespace octet::test {
namespace {

/// Bit by bit, as RFC 3720 has it: another way than the writer's.
uint32_t masked_crc(std::string_view data) {
  uint32_t crc = ~0u;
  for (const char byte : data) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1u)));
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

std::string_view cut(std::string_view& bytes, size_t count) {
  if (bytes.size() < count) throw std::runtime_error("ends early");
  const std::string_view taken = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return taken;
}

uint64_t varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(cut(bytes, 1)[0]);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
}

template <typename Number>
Number number(std::string_view bytes) {
  Number value = 0;
  if (bytes.size() != sizeof(value)) throw std::runtime_error("a number of another size");
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

std::string first(const Fields& fields, int key) {
  const auto found = fields.find(key);
  return found == fields.end() ? "" : found->second;
}

EventRecord read_event(std::string_view message) {
  const Fields event = read_fields(message);
  EventRecord record;
  if (event.contains(2)) record.step = number<int64_t>(first(event, 2));
  record.file_version = first(event, 3);
  if (event.contains(7)) record.session_status = number<int64_t>(first(read_fields(first(event, 7)), 1));
  const Fields summary = read_fields(first(event, 5));
  for (auto [at, end] = summary.equal_range(1); at != end; ++at) {
    const Fields value = read_fields(at->second);
    if (value.contains(2)) record.scalars[first(value, 1)] = number<float>(first(value, 2));
    if (value.contains(5)) record.histograms[first(value, 1)] = read_fields(first(value, 5));
  }
  return record;
}

}  // namespace

Fields read_fields(std::string_view message) {
  Fields fields;
  while (!message.empty()) {
    const uint64_t key = varint(message);
    const int field = static_cast<int>(key >> 3);
    std::string value;
    switch (key & 7) {
      case 0: {
        const uint64_t read = varint(message);
        value.assign(reinterpret_cast<const char*>(&read), sizeof(read));
        break;
      }
      case 1:
        value = cut(message, 8);
        break;
      case 2: {
        const uint64_t size = varint(message);
        value = cut(message, size);
        break;
      }
      case 5:
        value = cut(message, 4);
        break;
      default:
        throw std::runtime_error("a wire type that is none");
    }
    fields.emplace(field, value);
  }
  return fields;
}

std::vector<EventRecord> read_events(std::string_view bytes) {
  std::vector<EventRecord> records;
  while (!bytes.empty()) {
    const std::string_view length = cut(bytes, 8);
    if (number<uint32_t>(cut(bytes, 4)) != masked_crc(length)) throw std::runtime_error("CRC of a length");
    const std::string_view message = cut(bytes, number<uint64_t>(length));
    if (number<uint32_t>(cut(bytes, 4)) != masked_crc(message)) throw std::runtime_error("CRC of a message");
    records.push_back(read_event(message));
  }
  return records;
}

}  // namespace octet::test
