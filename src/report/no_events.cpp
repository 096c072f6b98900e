// SPDX-License-Identifier: Apache-2.0
// EventFile in a build without protobuf: it writes nothing, and tells the user so.
#include "src/base/progress.h"
#include "src/report/event_file.h"

namespace octet {

EventFile::EventFile(const std::string& folder, long) {
  say("note: " + folder + ": no TensorBoard files, this octet was built without protobuf (-DOCTET_ONNX=OFF)");
}

void EventFile::add(long, const Scalars&, const std::vector<EventHistogram>&) {}

}  // namespace octet
