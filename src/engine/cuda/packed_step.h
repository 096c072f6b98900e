// A group's kernels that launch with the same packed constants.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/cuda/memory.h"
#include "src/engine/cuda/step.h"

namespace octet {

/// Packed and uploaded once for all steps that hold them at the same time; freed on the device with the last of those.
class SharedConstants {
 public:
  explicit SharedConstants(std::function<std::vector<uint8_t>()> pack) : pack_(std::move(pack)) {}

  std::shared_ptr<const DeviceBuffer> upload(const Stream& stream) {
    std::shared_ptr<const DeviceBuffer> constants = uploaded_.lock();
    if (!constants) {
      constants = std::make_shared<const DeviceBuffer>(to_device(pack_(), "weights", stream.get()));
      uploaded_ = constants;
    }
    return constants;
  }

 private:
  std::function<std::vector<uint8_t>()> pack_;
  std::weak_ptr<const DeviceBuffer> uploaded_;
};

/// A step of a group by one kernel, which has no other constants.
class PackedStep final : public CudaStep {
 public:
  /// packed: the constants on the device.
  using Launch = std::function<void(const CudaStepData& data, const uint8_t* packed, CudaStream stream)>;

  PackedStep(std::string kernel, std::shared_ptr<SharedConstants> constants, Launch launch)
      : kernel_(std::move(kernel)), constants_(std::move(constants)), launch_(std::move(launch)) {}
  std::string kernel(int) const override { return kernel_; }
  void prepare(const CudaStepData&, const Stream& stream) override { packed_ = constants_->upload(stream); }
  size_t constant_bytes() const override { return packed_->bytes(); }
  void launch(const CudaStepData& data, CudaStream stream) const override { launch_(data, packed_->data(), stream); }

 private:
  std::string kernel_;
  std::shared_ptr<SharedConstants> constants_;
  Launch launch_;
  std::shared_ptr<const DeviceBuffer> packed_;
};

}  // namespace octet
