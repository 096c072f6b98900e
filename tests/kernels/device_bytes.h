// SPDX-License-Identifier: Apache-2.0
// Bytes on the GPU for tests: uploaded, with bytes behind them that kernels may read but not change.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "src/cuda/memory.h"
#include "src/cuda/stream.h"

namespace octet::kernels::testing {

class DeviceBytes {
 public:
  /// kCudaReadSlack bytes of `slack` follow.
  DeviceBytes(const std::vector<uint8_t>& bytes, const Stream& stream, uint8_t slack = 0x5C)
      : bytes_(bytes.size()), slack_(slack), buffer_(bytes.size() + kCudaReadSlack, "test data") {
    std::vector<uint8_t> all = bytes;
    all.resize(buffer_.bytes(), slack);
    copy_to_device(buffer_.data(), all.data(), all.size(), stream.get());
    stream.wait("uploading test data");
  }

  uint8_t* data() const { return buffer_.data(); }

  /// Waits for the stream. Fails the test when bytes behind these have changed.
  std::vector<uint8_t> read(const Stream& stream) const {
    std::vector<uint8_t> all(buffer_.bytes());
    copy_to_host(all.data(), buffer_.data(), all.size(), stream.get());
    stream.wait("running a kernel under test");
    EXPECT_TRUE(std::all_of(all.begin() + bytes_, all.end(), [&](uint8_t byte) { return byte == slack_; }))
        << "a kernel wrote behind its tensor";
    all.resize(bytes_);
    return all;
  }

 private:
  size_t bytes_;
  uint8_t slack_;
  DeviceBuffer buffer_;
};

}  // namespace octet::kernels::testing
