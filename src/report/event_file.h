// SPDX-License-Identifier: Apache-2.0
// A TensorBoard event file, to which training appends. Its format is protobuf messages (event.proto) in TFRecord's
// frame: the length and its masked CRC-32C (RFC 3720, appendix B.4), the message and its masked CRC-32C.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octet {

/// Counts of values in bins of equal width.
struct EventHistogram {
  std::string tag;
  double lo = 0, hi = 0;       ///< outer edges of the first and the last bin
  std::vector<double> counts;  ///< of the bins, at least one
};

class EventFile {
 public:
  /// Creates a new file in `folder`, and the folder if it is missing; TensorBoard reads all files of a folder as one.
  /// What earlier files say of `first_step` and later steps becomes void: a resumed run does them again. Throws
  /// Error(data) naming the file.
  EventFile(const std::string& folder, long first_step);

  /// Numbers by tag. TensorBoard groups tags by their first part: "loss/qat/training" with all that begin with "loss/".
  using Scalars = std::vector<std::pair<std::string, double>>;
  /// Appends an event, which is on disk when this returns. Throws Error(data), for example when the disk is full.
  void add(long step, const Scalars& scalars, const std::vector<EventHistogram>& histograms = {});

 private:
  void append(std::string_view message);

  std::string path_;
  std::ofstream file_;
};

/// Returns the CRC-32C (polynomial 0x1EDC6F41, reflected).
uint32_t crc32c(std::string_view data);

}  // namespace octet
