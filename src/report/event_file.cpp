// SPDX-License-Identifier: Apache-2.0
#include "src/report/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "src/base/error.h"

namespace octet {
namespace {

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Appends a number in little-endian order.
template <typename Number>
void put(std::string& bytes, Number value) {
  for (size_t i = 0; i < sizeof(value); ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
}

/// A protobuf message: its fields, in ascending order of their keys, as bytes
/// (https://protobuf.dev/programming-guides/encoding). Integers and reals of value 0 are left out.
class Message {
 public:
  const std::string& bytes() const { return bytes_; }

  void integer(int key, uint64_t value) {
    if (value == 0) return;
    begin(key, 0);
    varint(value);
  }
  void real(int key, double value) {
    const auto bits = std::bit_cast<uint64_t>(value);
    if (bits == 0) return;
    begin(key, 1);
    put(bytes_, bits);
  }
  void single(int key, float value) {
    begin(key, 5);
    put(bytes_, std::bit_cast<uint32_t>(value));
  }
  void text(int key, std::string_view text) {
    begin(key, 2);
    varint(text.size());
    bytes_ += text;
  }
  void reals(int key, const std::vector<double>& values) {
    std::string all;
    for (const double value : values) put(all, std::bit_cast<uint64_t>(value));
    text(key, all);
  }

 private:
  void begin(int key, int wire_type) { varint(static_cast<uint64_t>(key) << 3 | static_cast<uint64_t>(wire_type)); }
  void varint(uint64_t value) {
    for (; value > 0x7F; value >>= 7) bytes_ += static_cast<char>((value & 0x7F) | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

constexpr int kFileVersion = 3, kSummary = 5, kSessionLog = 7;  // the alternatives of an Event

/// Returns an Event with that alternative.
std::string event(long step, int key, std::string_view what) {
  Message message;
  message.real(1, seconds_since_1970());
  message.integer(2, static_cast<uint64_t>(step));
  message.text(key, what);
  return message.bytes();
}

/// Returns a Histogram; sums are computed as if each value lay in the middle of its bin.
std::string histogram_message(const EventHistogram& from) {
  const double width = (from.hi - from.lo) / static_cast<double>(from.counts.size());
  double edge = from.lo, number = 0, sum = 0, squares = 0;
  std::vector<double> edges;
  for (const double count : from.counts) {
    const double middle = edge + width / 2;
    edge += width;
    number += count;
    sum += count * middle;
    squares += count * middle * middle;
    edges.push_back(edge);
  }
  Message message;
  message.real(1, from.lo);
  message.real(2, from.hi);
  message.real(3, number);
  message.real(4, sum);
  message.real(5, squares);
  message.reals(6, edges);
  message.reals(7, from.counts);
  return message.bytes();
}

/// Returns the frame's form of the CRC, rotated and shifted, since a CRC of data that contains its own CRC is weak.
uint32_t masked_crc(std::string_view data) {
  const uint32_t crc = crc32c(data);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

/// Returns a path that does not exist yet: two processes, or two starts within a second, write two files.
std::string new_path(const std::string& folder) {
  char host[256] = "host";
  ::gethostname(host, sizeof(host) - 1);
  const auto seconds = static_cast<long>(seconds_since_1970());
  for (int number = 0;; ++number) {
    const std::string path =
        fmt::format("{}/events.out.tfevents.{}.{}.{}.{}", folder, seconds, host, ::getpid(), number);
    if (!std::filesystem::exists(path)) return path;
  }
}

}  // namespace

uint32_t crc32c(std::string_view data) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      made[i] = i;
      for (int bit = 0; bit < 8; ++bit) made[i] = (made[i] >> 1) ^ ((made[i] & 1) != 0 ? 0x82F63B78u : 0u);
    }
    return made;
  }();
  uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : data) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

EventFile::EventFile(const std::string& folder, long first_step) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw data_error(fmt::format("{}: cannot make this folder: {}", folder, error.message()));
  path_ = new_path(folder);
  file_.open(path_, std::ios::binary | std::ios::app);
  append(event(0, kFileVersion, "brain.Event:2"));
  if (first_step == 0) return;
  Message start;
  start.integer(1, 1);  // status: START
  append(event(first_step, kSessionLog, start.bytes()));
}

void EventFile::add(long step, const Scalars& scalars, const std::vector<EventHistogram>& histograms) {
  Message summary;
  for (const auto& [tag, value] : scalars) {
    Message entry;
    entry.text(1, tag);
    entry.single(2, static_cast<float>(value));
    summary.text(1, entry.bytes());
  }
  for (const EventHistogram& histogram : histograms) {
    Message entry;
    entry.text(1, histogram.tag);
    entry.text(5, histogram_message(histogram));
    summary.text(1, entry.bytes());
  }
  append(event(step, kSummary, summary.bytes()));
}

void EventFile::append(std::string_view message) {
  std::string record;
  put(record, static_cast<uint64_t>(message.size()));
  put(record, masked_crc(record));
  record += message;
  put(record, masked_crc(message));
  errno = 0;
  file_.write(record.data(), static_cast<std::streamsize>(record.size()));
  file_.flush();
  if (!file_) throw data_error(fmt::format("{}: cannot write: {}", path_, std::strerror(errno)));
}

}  // namespace octet
