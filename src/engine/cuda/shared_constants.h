// Constants on the device that several steps of one group launch with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "src/cuda/memory.h"
#include "src/cuda/stream.h"

namespace octet {

/// Uploads constants once for all steps that hold them at the same time; they are freed with the last of those.
class SharedConstants {
 public:
  std::shared_ptr<const DeviceBuffer> upload(const std::function<std::vector<uint8_t>()>& pack, const Stream& stream) {
    std::shared_ptr<const DeviceBuffer> constants = uploaded_.lock();
    if (!constants) {
      constants = std::make_shared<const DeviceBuffer>(to_device(pack(), "weights", stream.get()));
      uploaded_ = constants;
    }
    return constants;
  }

 private:
  std::weak_ptr<const DeviceBuffer> uploaded_;
};

}  // namespace octet
