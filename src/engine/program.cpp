#include "src/engine/engine.h"
#include "src/engine/support.h"

namespace octet {

void Program::submit(const uint8_t* images, int batch) {
  check_submit(submitted_.size());
  submitted_.push_back({images, batch});
}

void Program::collect(const OutputMemory& outputs) {
  check_collect(submitted_.size());
  const Submitted first = submitted_.front();
  submitted_.pop_front();
  run(first.images, first.batch, outputs);
}

}  // namespace octet
