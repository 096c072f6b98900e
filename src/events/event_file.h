// A TensorBoard event file, appended to while training runs. Format: protobuf messages (event.proto) in TFRecord's
// frame, the length, the message, and a masked CRC-32C (RFC 3720, appendix B.4) of each.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octet {

struct EventHistogram {
  std::string tag;
  double lo = 0, hi = 0;       ///< outer edges of the first and the last bin
  std::vector<double> counts;  ///< equally wide bins, at least one
};

class EventFile {
 public:
  /// A new file in `folder`, which is made; TensorBoard reads all files of a folder as one. What earlier ones say of
  /// `first_step` and later steps is void: a resumed run does them again. Throws Error(data) naming the file.
  EventFile(const std::string& folder, long first_step);

  /// Numbers by tag; "loss/qat/training" stands with all that begins with "loss/".
  using Scalars = std::vector<std::pair<std::string, double>>;
  /// On disk when it returns. Throws Error(data): a full disk.
  void add(long step, const Scalars& scalars, const std::vector<EventHistogram>& histograms = {});

 private:
  void append(std::string_view message);

  std::string path_;
  std::ofstream file_;
};

/// CRC-32C, polynomial 0x1EDC6F41 reflected.
uint32_t crc32c(std::string_view data);

}  // namespace octet
