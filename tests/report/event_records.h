// SPDX-License-Identifier: Apache-2.0
// Reads TensorBoard's event files without protobuf: TFRecord's frame, and of the messages what the tests ask for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace octet::test {

/// One message's fields by number, in order: of wire types 0, 1 and 5 the number's bytes, of 2 the bytes themselves.
using Fields = std::multimap<int, std::string>;
Fields read_fields(std::string_view message);

struct EventRecord {
  long step = 0;
  std::string file_version;
  long session_status = -1;
  std::map<std::string, float> scalars;
  std::map<std::string, Fields> histograms;
};

/// All records of a file; throws std::runtime_error where a CRC is wrong or a record ends early.
std::vector<EventRecord> read_events(std::string_view bytes);

}  // namespace octet::test
