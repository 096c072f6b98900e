#include "src/engine/cuda/work_space.h"

#include <fmt/format.h>

#include <utility>

namespace octet {

void WorkSpace::make_room(const CudaStep& step, int images, const Stream& stream) {
  if (const size_t bytes = step.scratch_bytes(images); bytes > scratch_.bytes()) {
    scratch_ = DeviceBuffer(bytes, fmt::format("work space of {} images", images));
    ++moves_;
  }
  if (const size_t bytes = step.zeroed_bytes(images); bytes > zeroed_.bytes()) {
    DeviceBuffer zeros(bytes, fmt::format("partial sums of {} images", images));
    fill_device(zeros.data(), 0, bytes, stream.get());
    zeroed_ = std::move(zeros);
    ++moves_;
  }
}

}  // namespace octet
