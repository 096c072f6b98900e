// SPDX-License-Identifier: Apache-2.0
// Times the convolutions of ResNet-50, ResNet-18 and MobileNetV2 (224x224), layer by layer and as they follow each
// other in the network, so that caches hold what they would hold there. Not a product: a tool for those who work on
// kernels.
//
//   conv_bench [model] [batch] [threads] [isa] [passes]       conv_bench resnet50 8 2 avx512_vnni 20
//
// Prints, for each distinct layer, how often it occurs, microseconds (median over passes and occurrences, multiplied by
// occurrences), its share, GMAC/s and the fraction of the micro-kernel's own speed on data in L1.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "src/base/threads.h"

namespace {

using octet::kernels::Conv2dParams;
using octet::kernels::Conv2dShape;
using octet::kernels::CpuConv2d;
using octet::kernels::CpuConv2dBatch;
using octet::kernels::CpuIsa;
using Clock = std::chrono::steady_clock;

struct Layer {
  Conv2dShape shape;
  bool residual = false;
};

/// Appends convolutions one after the other, following the size of the image.
class Builder {
 public:
  int size = 224, channels = 3;
  std::vector<Layer> layers;

  void conv(int out, int kernel, int stride, int groups = 1, bool residual = false) {
    add(channels, size, out, kernel, stride, groups, residual);
    size = (size + stride - 1) / stride;
    channels = out;
  }
  void add(int in, int in_size, int out, int kernel, int stride, int groups, bool residual) {
    Conv2dShape s;
    s.in_c = in;
    s.in_h = s.in_w = in_size;
    s.out_c = out;
    s.out_h = s.out_w = (in_size + stride - 1) / stride;
    s.kernel_h = s.kernel_w = kernel;
    s.stride_h = s.stride_w = stride;
    s.pad_h = s.pad_w = (kernel - 1) / 2;
    s.groups = groups;
    s.in_stride = octet::kernels::cpu_channel_stride(in);
    s.out_stride = s.residual_stride = octet::kernels::cpu_channel_stride(out);
    layers.push_back({s, residual});
  }
};

std::vector<Layer> resnet(const std::vector<int>& blocks, bool bottleneck) {
  Builder b;
  b.conv(64, 7, 2);
  b.size = 56;  // after max pooling
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    const int width = 64 << stage, out = bottleneck ? width * 4 : width;
    for (int i = 0; i < blocks[stage]; ++i) {
      const int stride = stage > 0 && i == 0 ? 2 : 1;
      if (i == 0 && (bottleneck || stage > 0)) b.add(b.channels, b.size, out, 1, stride, 1, false);
      if (bottleneck) {
        b.conv(width, 1, 1);
        b.conv(width, 3, stride);
        b.conv(out, 1, 1, 1, true);
      } else {
        b.conv(width, 3, stride);
        b.conv(width, 3, 1, 1, true);
      }
    }
  }
  b.size = 1;
  b.conv(1000, 1, 1);
  return b.layers;
}

std::vector<Layer> mobilenet_v2() {
  Builder b;
  b.conv(32, 3, 2);
  const int settings[][4] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                             {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  for (const auto& [expand, out, repeat, first_stride] : settings) {
    for (int i = 0; i < repeat; ++i) {
      const int stride = i == 0 ? first_stride : 1, hidden = b.channels * expand;
      const bool residual = stride == 1 && b.channels == out;
      if (expand != 1) b.conv(hidden, 1, 1);
      b.conv(hidden, 3, stride, hidden);
      b.conv(out, 1, 1, 1, residual);
    }
  }
  b.conv(1280, 1, 1);
  b.size = 1;
  b.conv(1000, 1, 1);
  return b.layers;
}

double multiply_adds(const Conv2dShape& s) {
  return static_cast<double>(s.out_h) * s.out_w * s.out_c * s.kernel_h * s.kernel_w * (s.in_c / s.groups);
}

std::string label(const Layer& l) {
  const Conv2dShape& s = l.shape;
  return fmt::format("{:4d},{:3d} -> {:4d} {}x{}/{}{}{}", s.in_c, s.in_h, s.out_c, s.kernel_h, s.kernel_w, s.stride_h,
                     s.groups > 1 ? " dw" : "", l.residual ? " +res" : "");
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
  return v[v.size() / 2];
}

/// The first 64-byte boundary in a buffer, as in an engine's arena.
uint8_t* align(std::vector<uint8_t>& buffer) {
  return buffer.data() + (64 - reinterpret_cast<uintptr_t>(buffer.data()) % 64) % 64;
}

/// A network's convolutions with random weights, and two buffers that take turns as input and output.
class Network {
 public:
  Network(const std::vector<Layer>& layers, int batch, CpuIsa isa) : batch_(batch) {
    std::mt19937 random(1);
    size_t largest = 0, workspace = 0;
    for (const Layer& l : layers) {
      const Conv2dShape& s = l.shape;
      std::vector<int8_t> weight(static_cast<size_t>(s.out_c) * s.kernel_h * s.kernel_w * (s.in_c / s.groups));
      for (int8_t& w : weight) w = static_cast<int8_t>(random() % 255 - 127);
      const std::vector<float> multiplier(s.out_c, 2e-4f), bias(s.out_c, 100.0f);
      Conv2dParams p;
      p.has_residual = l.residual;
      p.residual_multiplier = 0.5f;
      convs_.push_back(CpuConv2d::create(s, p, {weight.data(), multiplier.data(), bias.data()}, isa));
      workspace = std::max(workspace, convs_.back()->workspace_bytes());
      largest = std::max({largest, static_cast<size_t>(s.in_h) * s.in_w * s.in_stride,
                          static_cast<size_t>(s.out_h) * s.out_w * s.out_stride});
    }
    workspace_bytes_ = (workspace + 127) / 64 * 64;
    for (auto& buffer : buffers_) {
      buffer.resize(largest * batch + octet::kernels::kCpuReadSlack + 64);
      for (uint8_t& code : buffer) code = static_cast<uint8_t>(random());
    }
  }

  /// seconds[i] gets the time of layer i.
  void run(octet::ThreadPool& pool, std::vector<std::vector<double>>& seconds) {
    workspaces_.resize(pool.size() * workspace_bytes_ + 64);
    uint8_t* workspace = align(workspaces_);
    for (size_t i = 0; i < convs_.size(); ++i) {
      CpuConv2dBatch batch;
      batch.images = batch_;
      batch.x = align(buffers_[i % 2]);
      batch.residual = align(buffers_[2]);
      batch.y = align(buffers_[(i + 1) % 2]);
      const auto start = Clock::now();
      pool.run(convs_[i]->tasks(batch_), [&](int task, int thread) {
        convs_[i]->run(batch, task, task + 1, workspace + thread * workspace_bytes_);
      });
      seconds[i].push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
  }
  const CpuConv2d& conv(size_t i) const { return *convs_[i]; }

 private:
  int batch_;
  std::vector<std::unique_ptr<CpuConv2d>> convs_;
  std::vector<uint8_t> buffers_[3], workspaces_;
  size_t workspace_bytes_ = 0;
};

/// GMAC/s of one convolution that stays in L1 on every thread at once: what the micro-kernel can do.
double kernel_peak(octet::ThreadPool& pool, CpuIsa isa) {
  Builder b;
  b.add(256, 1, 32, 1, 1, 1, false);
  Conv2dShape s = b.layers[0].shape;
  s.in_h = s.out_h = 14;
  const std::vector<int8_t> weight(32 * 256, 77);
  const std::vector<float> constants(32, 0.001f);
  Conv2dParams p;
  const auto conv = CpuConv2d::create(s, p, {weight.data(), constants.data(), constants.data()}, isa);
  std::vector<std::vector<uint8_t>> memory(pool.size(), std::vector<uint8_t>(conv->workspace_bytes() + 65536, 99));
  double best = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const int loops = 2000;
    const auto start = Clock::now();
    pool.run(pool.size(), [&](int, int thread) {
      uint8_t* m = align(memory[thread]);
      CpuConv2dBatch batch;
      batch.x = m;
      batch.y = m + 16384;
      for (int i = 0; i < loops; ++i) conv->run(batch, 0, conv->tasks(1), m + 32768);
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, loops * pool.size() * multiply_adds(s) / seconds);
  }
  return best / 1e9;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "resnet50";
  const int batch = argc > 2 ? std::atoi(argv[2]) : 1, threads = argc > 3 ? std::atoi(argv[3]) : 0;
  CpuIsa isa = octet::kernels::best_cpu_isa();
  for (const CpuIsa i : octet::kernels::kCpuIsas) {
    if (argc > 4 && argv[4] == octet::kernels::cpu_isa_name(i)) isa = i;
  }
  const int passes = argc > 5 ? std::atoi(argv[5]) : 20;

  const std::vector<Layer> layers = model == "resnet18"    ? resnet({2, 2, 2, 2}, false)
                                    : model == "mobilenet" ? mobilenet_v2()
                                                           : resnet({3, 4, 6, 3}, true);
  octet::ThreadPool pool(threads);
  Network network(layers, batch, isa);
  const double peak = kernel_peak(pool, isa);
  std::vector<std::vector<double>> seconds(layers.size());
  for (int i = 0; i < 2; ++i) network.run(pool, seconds);
  for (auto& s : seconds) s.clear();
  for (int i = 0; i < passes; ++i) network.run(pool, seconds);

  struct Row {
    int count = 0;
    double seconds = 0, macs = 0;
    std::string kernel;
    int tasks = 0;
  };
  std::map<std::string, Row> rows;
  std::vector<std::string> order;
  double total = 0, total_macs = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string key = label(layers[i]);
    if (!rows.count(key)) order.push_back(key);
    Row& row = rows[key];
    ++row.count;
    row.seconds += median(seconds[i]);
    row.macs += multiply_adds(layers[i].shape) * batch;
    row.kernel = network.conv(i).name();
    row.tasks = network.conv(i).tasks(batch);
    total += median(seconds[i]);
    total_macs += multiply_adds(layers[i].shape) * batch;
  }
  fmt::print("{} batch {} threads {} {}; micro-kernel in L1: {:.0f} GMAC/s\n", model, batch, pool.size(),
             octet::kernels::cpu_isa_name(isa), peak);
  for (const std::string& key : order) {
    const Row& r = rows[key];
    fmt::print("{:34} x{:<2} {:8.1f} us {:5.1f} % of time {:6.0f} GMAC/s {:5.1f} %  {} tasks, {}\n", key, r.count,
               r.seconds * 1e6, 100 * r.seconds / total, r.macs / r.seconds / 1e9,
               100 * r.macs / r.seconds / 1e9 / peak, r.tasks, r.kernel);
  }
  fmt::print("total {:.3f} ms, {:.0f} GMAC/s, {:.1f} %\n", total * 1e3, total_macs / total / 1e9,
             100 * total_macs / total / 1e9 / peak);
  return 0;
}
