// SPDX-License-Identifier: Apache-2.0
// What benchmarks of single kernels share: tensors to rotate over, and times of launches in a captured graph.
#pragma once

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "src/base/numbers.h"
#include "src/cuda/memory.h"
#include "src/cuda/stream.h"

namespace octet {

/// `copies` tensors one after another, random bytes.
class BenchTensors {
 public:
  BenchTensors(size_t bytes, int copies, const Stream& stream)
      : step_((bytes + kernels::kCudaReadSlack + 255) / 256 * 256), buffer_(step_ * copies, "the benchmark's tensors") {
    static const std::vector<uint8_t> random = [] {
      std::mt19937 generator(1);
      std::vector<uint8_t> bytes(size_t{1} << 22);
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator() >> 11);
      return bytes;
    }();
    for (size_t at = 0; at < buffer_.bytes(); at += random.size()) {
      copy_to_device(buffer_.data() + at, random.data(), std::min(random.size(), buffer_.bytes() - at), stream.get());
    }
    stream.wait("filling the benchmark's tensors");
  }
  uint8_t* copy(int i) const { return buffer_.data() + step_ * i; }

 private:
  size_t step_;
  DeviceBuffer buffer_;
};

/// Microseconds of one of `launches` launches that follow each other in a graph, launch(0) and on: the median of
/// `repeats` replays after two that do not count.
inline double bench_launches(const Stream& stream, int launches, int repeats, const std::function<void(int)>& launch) {
  const CapturedGraph graph(stream, [&] {
    for (int i = 0; i < launches; ++i) launch(i);
  });
  std::vector<double> times;
  for (int i = 0; i < repeats + 2; ++i) {
    Event start, stop;
    start.record(stream.get());
    graph.replay(stream.get());
    stop.record(stream.get());
    stop.wait();
    if (i >= 2) times.push_back(stop.milliseconds_since(start) * 1e3 / launches);
  }
  return median(times);
}

}  // namespace octet
