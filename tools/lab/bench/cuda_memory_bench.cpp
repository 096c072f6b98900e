// SPDX-License-Identifier: Apache-2.0
// Times the GPU's operators that memory bounds (input quantization, first layers, depthwise convolution, pooling, add,
// requantize) on layers of ResNet-50, ResNet-18 for CIFAR-10 and MobileNetV2, against the bytes they have to move. Not
// a product: a tool for those who work on kernels.
//
//   cuda_memory_bench [batch]
//
// Prints for each layer and variant microseconds (median of 25 replays of a graph of 8 launches), MB read and written
// once, GB/s, and the share of the speed of a large copy in the same run. Tensors rotate, so that the cache does not
// hold the next launch's input unless the layer's tensors are larger than a rotation.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "kernels/operators/copies.h"
#include "kernels/operators/elementwise.h"
#include "kernels/operators/lookup.h"
#include "kernels/operators/pool.h"
#include "src/base/error.h"
#include "src/cuda/device.h"
#include "src/cuda/memory.h"
#include "src/cuda/stream.h"

namespace {

using namespace octet;
using namespace octet::kernels;

constexpr size_t kArena = size_t{2} << 30;
constexpr int kLaunches = 8, kReplays = 25;

DeviceBuffer random_buffer(size_t bytes, const Stream& stream) {
  std::mt19937_64 random(7);
  std::vector<uint64_t> words((bytes + 7) / 8);
  for (uint64_t& word : words) word = random();
  DeviceBuffer buffer(bytes + kCudaReadSlack, "the benchmark");
  copy_to_device(buffer.data(), words.data(), bytes, stream.get());
  stream.wait("uploading random data");
  return buffer;
}

class Bench {
 public:
  using Launch = std::function<void(const uint8_t* x, uint8_t* y, CudaStream stream)>;

  Bench() : x_(random_buffer(kArena, stream_)), y_(kArena, "the benchmark") {
    const size_t bytes = kArena / 2;
    ceiling_ = 2 * bytes / seconds(bytes, bytes, [&](const uint8_t* x, uint8_t* y, CudaStream stream) {
                 cuda_copy_codes({1, static_cast<int>(bytes / 4096), 4096, 4096, 4096}, x, y, stream);
               });
    fmt::print("copy of {} MB: {:.0f} GB/s\n", bytes >> 20, ceiling_ * 1e-9);
  }

  const Stream& stream() const { return stream_; }

  void run(const std::string& name, size_t x_bytes, size_t y_bytes, const Launch& launch) {
    const double time = seconds(x_bytes, y_bytes, launch), moved = static_cast<double>(x_bytes + y_bytes);
    fmt::print("{:<52} {:8.1f} us {:7.1f} MB {:6.0f} GB/s {:4.0f} %\n", name, time * 1e6, moved * 1e-6,
               moved / time * 1e-9, 100 * moved / time / ceiling_);
  }

 private:
  double seconds(size_t x_bytes, size_t y_bytes, const Launch& launch) {
    const auto step = [](size_t bytes) { return (bytes + 511) / 256 * 256; };
    const size_t sets = std::min(kArena / step(x_bytes), kArena / step(y_bytes));
    if (sets == 0) {
      throw usage_error(fmt::format("a tensor of {} MiB does not fit in {} MiB: name a smaller batch",
                                    std::max(x_bytes, y_bytes) >> 20, kArena >> 20));
    }
    const CapturedGraph graph(stream_, [&] {
      for (size_t i = 0; i < kLaunches; ++i) {
        launch(x_.data() + i % sets * step(x_bytes), y_.data() + i % sets * step(y_bytes), stream_.get());
      }
    });
    std::vector<double> times;
    for (int i = 0; i < kReplays; ++i) {
      Event start, end;
      start.record(stream_.get());
      graph.replay(stream_.get());
      end.record(stream_.get());
      end.wait();
      times.push_back(end.milliseconds_since(start) * 1e-3 / kLaunches);
    }
    std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
    return times[kReplays / 2];
  }

  Stream stream_;
  DeviceBuffer x_, y_;
  double ceiling_ = 1;
};

struct Conv {
  int in_c, size, out_c, kernel, stride, groups;
};

void run_conv(Bench& bench, int batch, const Conv& c) {
  Conv2dShape g;
  g.in_c = c.in_c, g.out_c = c.out_c, g.groups = c.groups;
  g.in_h = g.in_w = c.size, g.out_h = g.out_w = (c.size + c.stride - 1) / c.stride;
  g.kernel_h = g.kernel_w = c.kernel, g.stride_h = g.stride_w = c.stride, g.pad_h = g.pad_w = c.kernel / 2;
  g.in_stride = cuda_channel_stride(c.in_c), g.out_stride = cuda_channel_stride(c.out_c);
  std::mt19937 random(3);
  std::vector<int8_t> weight(static_cast<size_t>(c.out_c) * c.kernel * c.kernel * (c.in_c / c.groups));
  for (int8_t& w : weight) w = static_cast<int8_t>(random() % 255 - 127);
  const std::vector<float> multiplier(c.out_c, 1e-4f), bias(c.out_c, 100.0f);
  const Conv2dParams params;
  const Conv2dWeights weights{weight.data(), multiplier.data(), bias.data()};
  for (const CudaConv2d& conv : cuda_conv2d_choices(g, params, weights, batch, this_gpu())) {
    if (conv.name == "direct") continue;
    const std::vector<uint8_t> bytes = cuda_conv2d_pack(conv, g, params, weights);
    const DeviceBuffer packed(bytes.size(), "weights");
    copy_to_device(packed.data(), bytes.data(), bytes.size(), bench.stream().get());
    const size_t scratch = cuda_conv2d_workspace(conv, g, batch);
    const DeviceBuffer workspace(scratch + 1, "the workspace");
    fill_device(workspace.data(), 0, scratch + 1, bench.stream().get());
    bench.stream().wait("uploading weights");
    bench.run(
        fmt::format("{} {}->{} {}x{}/{} groups {}", conv.name, c.in_c, c.out_c, c.size, c.kernel, c.stride, c.groups),
        static_cast<size_t>(batch) * g.in_h * g.in_w * g.in_stride,
        static_cast<size_t>(batch) * g.out_h * g.out_w * g.out_stride,
        [&](const uint8_t* x, uint8_t* y, CudaStream stream) {
          cuda_conv2d(conv, g, params, {batch, packed.data(), x, nullptr, y, workspace.data()}, stream);
        });
  }
}

void run_pool(Bench& bench, int batch, const std::string& name, int channels, int size, int kernel, int stride) {
  const int out = kernel == size ? 1 : (size + stride - 1) / stride, pad = kernel == size ? 0 : kernel / 2;
  const PoolShape s{channels,
                    size,
                    size,
                    cuda_channel_stride(channels),
                    out,
                    out,
                    cuda_channel_stride(channels),
                    kernel,
                    kernel,
                    stride,
                    stride,
                    pad,
                    pad};
  const size_t x_bytes = static_cast<size_t>(batch) * size * size * s.in_stride;
  const size_t y_bytes = static_cast<size_t>(batch) * out * out * s.out_stride;
  const size_t scratch = cuda_avg_pool_workspace(s, batch);
  const DeviceBuffer workspace(scratch + 1, "the workspace");
  fill_device(workspace.data(), 0, scratch + 1, bench.stream().get());
  bench.run(fmt::format("{} {} {}x{}/{}", name, channels, size, kernel, stride), x_bytes, y_bytes,
            [&](const uint8_t* x, uint8_t* y, CudaStream stream) {
              if (name == "max_pool") {
                cuda_max_pool_int8(s, {}, {batch, x, y}, stream);
              } else {
                cuda_avg_pool_int8(s, {.x = {3, false}, .multiplier = 0.02f}, {batch, x, y, workspace.data()}, stream);
              }
            });
}

void run_pixelwise(Bench& bench, int batch) {
  for (const auto& [channels, size] : {std::pair{256, 56}, {24, 56}, {2048, 7}, {64, 32}}) {
    const int stride = cuda_channel_stride(channels);
    const ElementwiseShape s{size * size, channels, stride, stride, stride};
    const size_t bytes = static_cast<size_t>(batch) * size * size * stride;
    const std::string shape = fmt::format("{} {}x{}", channels, size, size);
    bench.run("add " + shape, 2 * bytes, bytes, [&](const uint8_t* x, uint8_t* y, CudaStream stream) {
      const AddParams params{{3, false}, {5, false}, 0.4f, 0.3f, {}};
      cuda_add_int8(s, params, {batch, x, x + bytes, y}, stream);
    });
    bench.run("requantize " + shape, bytes, bytes, [&](const uint8_t* x, uint8_t* y, CudaStream stream) {
      cuda_requantize_int8(s, {{3, false}, 0.4f, {}}, {batch, x, nullptr, y}, stream);
    });
  }
}

void run_all(int batch) {
  if (batch < 1) throw usage_error("the batch must be 1 or more");
  fmt::print("{}, batch {}\n", gpu_status().name, batch);
  Bench bench;
  for (const int size : {224, 32}) {
    const long pixels = static_cast<long>(batch) * size * size;
    const DeviceBuffer tables = random_buffer(768, bench.stream());
    bench.run(fmt::format("quantize_image {}x{}", size, size), 3 * pixels, 4 * pixels,
              [&](const uint8_t* x, uint8_t* y, CudaStream stream) {
                cuda_quantize_image({3, 4}, pixels, tables.data(), x, y, stream);
              });
  }
  const Conv convs[] = {{3, 224, 64, 7, 2, 1},     {3, 32, 64, 3, 1, 1},      {3, 224, 32, 3, 2, 1},
                        {1, 28, 32, 3, 1, 1},      {32, 112, 32, 3, 1, 32},   {96, 112, 96, 3, 2, 96},
                        {144, 56, 144, 3, 1, 144}, {144, 56, 144, 3, 2, 144}, {192, 28, 192, 3, 1, 192},
                        {384, 14, 384, 3, 1, 384}, {576, 14, 576, 3, 2, 576}, {960, 7, 960, 3, 1, 960},
                        {192, 32, 192, 3, 1, 192}, {384, 8, 384, 3, 1, 384},  {144, 56, 144, 5, 1, 144},
                        {128, 56, 128, 3, 1, 32},  {512, 14, 512, 3, 1, 32}};
  for (const Conv& conv : convs) run_conv(bench, batch, conv);
  run_pool(bench, batch, "max_pool", 64, 112, 3, 2);
  run_pool(bench, batch, "avg_pool", 2048, 7, 7, 1);
  run_pool(bench, batch, "avg_pool", 1280, 7, 7, 1);
  run_pool(bench, batch, "avg_pool", 512, 4, 4, 1);
  run_pool(bench, batch, "avg_pool", 256, 28, 2, 2);
  run_pixelwise(bench, batch);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run_all(argc > 1 ? std::atoi(argv[1]) : 128);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_memory_bench: {}\n", error.what());
    return 1;
  }
}
