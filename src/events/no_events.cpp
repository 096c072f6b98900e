// Of a build without protobuf: nothing is written, and the user is told.
#include "src/common/progress.h"
#include "src/events/event_file.h"

namespace octet {

EventFile::EventFile(const std::string& folder, long) {
  say("note: " + folder + ": no TensorBoard files, this octet was built without protobuf (-DOCTET_ONNX=OFF)");
}

void EventFile::add(long, const Scalars&, const std::vector<EventHistogram>&) {}

}  // namespace octet
