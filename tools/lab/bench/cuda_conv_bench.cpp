// SPDX-License-Identifier: Apache-2.0
// Times every choice of cuda_conv2d for the convolutions of ResNet-50 (224x224), layer by layer, on random data: device
// events around replays of a CUDA graph of several launches. Not a product: a tool for those who work on kernels.
//
//   cuda_conv_bench [batch] [MiB to rotate over] [repeats] [2:4 | dense] [layer...]         cuda_conv_bench 128 256 15
//
// With 2:4 of each four weights two are 0, and sparse kernels run beside the dense ones. A layer is named by its input
// channels, size and output channels, as in 1024,14,256; the sum is of those that are named, or of all.
//
// Launches rotate over copies of a layer's tensors, so that they come from memory and not from the L2 cache. With 0 MiB
// there is one copy: at batch 1 a network's weights and codes stay in the L2 cache.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "src/base/error.h"
#include "src/cuda/device.h"
#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "tools/lab/bench/bench_arguments.h"
#include "tools/lab/bench/cuda_bench.h"

namespace {

using namespace octet;           // NOLINT: a tool
using namespace octet::kernels;  // NOLINT

struct Layer {
  int count, in_c, size, out_c, kernel, stride;
  bool residual = false, logits = false;
};

// How often each convolution occurs; the first layer and the logits are not part of the sum.
const Layer kLayers[] = {
    {1, 3, 224, 64, 7, 2},
    {1, 64, 56, 64, 1, 1},
    {3, 64, 56, 64, 3, 1},
    {1, 64, 56, 256, 1, 1},
    {3, 64, 56, 256, 1, 1, true},
    {2, 256, 56, 64, 1, 1},
    {1, 256, 56, 128, 1, 1},
    {1, 128, 56, 128, 3, 2},
    {4, 128, 28, 512, 1, 1, true},
    {3, 512, 28, 128, 1, 1},
    {3, 128, 28, 128, 3, 1},
    {1, 256, 56, 512, 1, 2},
    {1, 512, 28, 256, 1, 1},
    {1, 256, 28, 256, 3, 2},
    {6, 256, 14, 1024, 1, 1, true},
    {5, 1024, 14, 256, 1, 1},
    {5, 256, 14, 256, 3, 1},
    {1, 512, 28, 1024, 1, 2},
    {1, 1024, 14, 512, 1, 1},
    {1, 512, 14, 512, 3, 2},
    {3, 512, 7, 2048, 1, 1, true},
    {2, 2048, 7, 512, 1, 1},
    {2, 512, 7, 512, 3, 1},
    {1, 1024, 14, 2048, 1, 2},
    {1, 2048, 1, 1000, 1, 1, false, true},
    {0, 3, 224, 32, 3, 2},  // MobileNetV2's first
};

Conv2dShape shape_of(const Layer& l) {
  Conv2dShape s;
  s.in_c = l.in_c;
  s.in_h = s.in_w = l.size;
  s.out_c = l.out_c;
  s.out_h = s.out_w = (l.size + l.stride - 1) / l.stride;
  s.kernel_h = s.kernel_w = l.kernel;
  s.stride_h = s.stride_w = l.stride;
  s.pad_h = s.pad_w = (l.kernel - 1) / 2;
  s.in_stride = cuda_channel_stride(l.in_c);
  s.out_stride = l.logits ? l.out_c : cuda_channel_stride(l.out_c);
  s.residual_stride = cuda_channel_stride(l.out_c);
  return s;
}

class Bench {
 public:
  Bench(int batch, size_t rotate_bytes, int repeats, bool sparse)
      : batch_(batch), rotate_bytes_(rotate_bytes), repeats_(repeats), sparse_(sparse) {}

  /// Microseconds of the fastest choice; prints all.
  double run(const Layer& l) {
    const Conv2dShape s = shape_of(l);
    std::mt19937 random(2);
    std::vector<int8_t> weight(static_cast<size_t>(s.out_c) * s.kernel_h * s.kernel_w * s.in_c);
    for (int8_t& w : weight) w = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
    for (size_t four = 0; sparse_ && four + 4 <= weight.size(); four += 4) {
      const size_t first = random() % 4, second = (first + 1 + random() % 3) % 4;
      weight[four + first] = weight[four + second] = 0;
    }
    const std::vector<float> multiplier(s.out_c, 3e-5f), bias(s.out_c, 30.0f);
    Conv2dParams p;
    const Conv2dWeights w{weight.data(), multiplier.data(), bias.data()};
    p.has_residual = l.residual, p.residual_multiplier = 0.5f;
    p.y.float_output = l.logits;

    const size_t x_bytes = static_cast<size_t>(batch_) * s.in_h * s.in_w * s.in_stride;
    const size_t pixels = static_cast<size_t>(batch_) * s.out_h * s.out_w;
    const size_t y_bytes = pixels * s.out_stride * (l.logits ? 4 : 1), r_bytes = l.residual ? pixels * s.out_stride : 0;
    const size_t bytes = x_bytes + y_bytes + r_bytes + weight.size();
    const int copies = static_cast<int>(std::clamp<size_t>(rotate_bytes_ / bytes + 1, 1, 64));
    const BenchTensors x(x_bytes, copies, stream_), y(y_bytes, copies, stream_), residual(r_bytes, copies, stream_);
    const double products = static_cast<double>(pixels) * s.out_c * s.kernel_h * s.kernel_w * s.in_c;

    double best = 0;
    std::string best_name, others;
    for (const CudaConv2d& conv : cuda_conv2d_choices(s, p, w, batch_, this_gpu())) {
      if (conv.name == "direct" && best > 0) continue;  // far slower where anything else runs
      const std::vector<uint8_t> packed = cuda_conv2d_pack(conv, s, p, w);
      const DeviceBuffer constants(packed.size() + kCudaReadSlack, "the benchmark's weights");
      copy_to_device(constants.data(), packed.data(), packed.size(), stream_.get());
      const size_t scratch = cuda_conv2d_workspace(conv, s, batch_);
      const DeviceBuffer workspace(std::max<size_t>(scratch, 256), "the benchmark's workspace");
      fill_device(workspace.data(), 0, workspace.bytes(), stream_.get());
      stream_.wait("preparing a benchmark");
      const int launches = std::max(copies, 10);
      const double us = bench_launches(stream_, launches, repeats_, [&](int i) {
        cuda_conv2d(conv, s, p,
                    {batch_, constants.data(), x.copy(i % copies), l.residual ? residual.copy(i % copies) : nullptr,
                     y.copy(i % copies), workspace.data()},
                    stream_.get());
      });
      others += fmt::format(" {}={:.1f}", conv.name, us);
      if (best == 0 || us < best) best = us, best_name = conv.name;
    }
    fmt::print("{}x {:4d},{:3d} -> {:4d} {}x{}/{}{} {:8.1f} us {:5.0f} TOPS {:5.0f} GB/s  {} |{}\n", l.count, l.in_c,
               l.size, l.out_c, l.kernel, l.kernel, l.stride, l.residual ? " +res" : "     ", best,
               2e-6 * products / best, 1e-3 * static_cast<double>(bytes) / best, best_name, others);
    std::fflush(stdout);
    return best;
  }

 private:
  int batch_;
  size_t rotate_bytes_;
  int repeats_;
  bool sparse_;
  Stream stream_;
};

bool is_named(const Layer& l, const std::vector<std::string>& names) {
  const std::string name = fmt::format("{},{},{}", l.in_c, l.size, l.out_c);
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

void run_all(int batch, size_t rotate, int repeats, bool sparse, const std::vector<std::string>& names) {
  if (!gpu_status().usable) throw usage_error("needs a GPU: " + gpu_status().reason);
  fmt::print("{}, batch {}\n", gpu_status().name, batch);
  Bench bench(batch, rotate, repeats, sparse);
  double sum = 0, first = 0, logits = 0;
  for (const Layer& l : kLayers) {
    if (!is_named(l, names)) continue;
    const double us = bench.run(l) * l.count;
    (l.in_c == 3 ? first : l.logits ? logits : sum) += us;
  }
  fmt::print("batch {}: {:.3f} ms without the first layer ({:.3f} ms) and the logits ({:.3f} ms)\n", batch, sum * 1e-3,
             first * 1e-3, logits * 1e-3);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string weights = argc > 4 ? argv[4] : "dense";
    if (weights != "2:4" && weights != "dense") throw octet::usage_error("the fourth argument is 2:4 or dense");
    const auto argument = [&](int i, int least, int otherwise) {
      return argc > i ? octet::whole_number(argv[i], least) : otherwise;
    };
    run_all(argument(1, 1, 128), static_cast<size_t>(argument(2, 0, 256)) << 20, argument(3, 1, 15), weights == "2:4",
            {argv + std::min(argc, 5), argv + argc});
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_conv_bench: {}\n", error.what());
    return 1;
  }
}
