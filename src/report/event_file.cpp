// SPDX-License-Identifier: Apache-2.0
#include "src/report/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "event.pb.h"
#include "src/base/error.h"

namespace octet {
namespace {

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

events::Event event_at(long step) {
  events::Event event;
  event.set_wall_time(seconds_since_1970());
  event.set_step(step);
  return event;
}

/// Fills the message; sums are computed as if each value lay in the middle of its bin.
void fill(const EventHistogram& from, events::Histogram& to) {
  const double width = (from.hi - from.lo) / static_cast<double>(from.counts.size());
  double edge = from.lo, number = 0, sum = 0, squares = 0;
  for (const double count : from.counts) {
    const double middle = edge + width / 2;
    edge += width;
    number += count;
    sum += count * middle;
    squares += count * middle * middle;
    to.add_bucket_limit(edge);
    to.add_bucket(count);
  }
  to.set_min(from.lo);
  to.set_max(from.hi);
  to.set_num(number);
  to.set_sum(sum);
  to.set_sum_squares(squares);
}

/// Appends a number in little-endian order.
template <typename Number>
void put(std::string& bytes, Number value) {
  for (size_t i = 0; i < sizeof(value); ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
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
  events::Event version = event_at(0);
  version.set_file_version("brain.Event:2");
  append(version.SerializeAsString());
  if (first_step == 0) return;
  events::Event again = event_at(first_step);
  again.mutable_session_log()->set_status(events::SessionLog::START);
  append(again.SerializeAsString());
}

void EventFile::add(long step, const Scalars& scalars, const std::vector<EventHistogram>& histograms) {
  events::Event event = event_at(step);
  for (const auto& [tag, value] : scalars) {
    events::Summary::Value& entry = *event.mutable_summary()->add_value();
    entry.set_tag(tag);
    entry.set_simple_value(static_cast<float>(value));
  }
  for (const EventHistogram& histogram : histograms) {
    events::Summary::Value& entry = *event.mutable_summary()->add_value();
    entry.set_tag(histogram.tag);
    fill(histogram, *entry.mutable_histo());
  }
  append(event.SerializeAsString());
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
