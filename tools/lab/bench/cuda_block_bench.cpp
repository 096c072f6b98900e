// SPDX-License-Identifier: Apache-2.0
// Times the inverted residuals of MobileNetV2 (224x224) as one kernel, every tile, beside the fastest separate kernels
// in a row, on random data: device events around replays of a CUDA graph of several launches. Not a product: a tool for
// those who work on kernels.
//
//   cuda_block_bench [batch] [MiB to rotate over] [repeats] [tiles] [first block] [last block] [highest code] [tile]
//   cuda_block_bench 128 256 7
//
// Launches rotate over copies of x, residual and y; what lies between the separate kernels is there once, as in a
// network's arena. tiles: how many of the model's ranking are tried, of those whose blocks take turns and of the
// others, not only those that are chosen from; the clocks that the model says are printed beside them. highest code:
// what ReLU6 clamps hidden codes to; tile: the only one that is run, by its name without "inverted_residual_".
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>

#include "kernels/groups/inverted_residual/plan.h"
#include "src/base/error.h"
#include "src/cuda/device.h"
#include "tools/lab/bench/bench_arguments.h"
#include "tools/lab/bench/cuda_bench.h"

namespace {

using namespace octet;           // NOLINT: a tool
using namespace octet::kernels;  // NOLINT

struct Layer {
  int count, in_c, hidden, out_c, size, stride;
  bool expand = true, residual = false;
};

const Layer kLayers[] = {
    {1, 32, 32, 16, 112, 1, false},       {1, 16, 96, 24, 112, 2},
    {1, 24, 144, 24, 56, 1, true, true},  {1, 24, 144, 32, 56, 2},
    {2, 32, 192, 32, 28, 1, true, true},  {1, 32, 192, 64, 28, 2},
    {3, 64, 384, 64, 14, 1, true, true},  {1, 64, 384, 96, 14, 1},
    {2, 96, 576, 96, 14, 1, true, true},  {1, 96, 576, 160, 14, 2},
    {2, 160, 960, 160, 7, 1, true, true},
};

/// A convolution with random weights.
struct Conv {
  ConvNode node;
  std::vector<int8_t> weight;
  std::vector<float> multiplier, bias;

  Conv(int in_c, int out_c, int size, int kernel, int stride, bool depthwise) {
    Conv2dShape& s = node.shape;
    s.in_c = in_c, s.in_h = s.in_w = size, s.out_c = out_c, s.out_h = s.out_w = (size + stride - 1) / stride;
    s.kernel_h = s.kernel_w = kernel, s.stride_h = s.stride_w = stride, s.pad_h = s.pad_w = kernel / 2;
    s.groups = depthwise ? in_c : 1;
    s.in_stride = cuda_channel_stride(in_c), s.out_stride = s.residual_stride = cuda_channel_stride(out_c);
    std::mt19937 random(2);
    weight.resize(static_cast<size_t>(out_c) * kernel * kernel * in_c / s.groups);
    for (int8_t& w : weight) w = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
    multiplier.assign(out_c, 3e-4f), bias.assign(out_c, 30.0f);
    node.weights = {weight.data(), multiplier.data(), bias.data()};
  }
  size_t out_bytes(int images) const {
    return static_cast<size_t>(images) * node.shape.out_h * node.shape.out_w * node.shape.out_stride;
  }
};

/// A convolution with the fastest of its kernels, each timed alone.
class Fastest {
 public:
  Fastest(const ConvNode& node, int images, CudaConv2dData data, int repeats, const Stream& stream) : node_(node) {
    data.images = images;
    double best = 0;
    for (const CudaConv2d& conv : cuda_conv2d_choices(node.shape, node.params, node.weights, images, this_gpu())) {
      if (conv.name == "direct" && best > 0) continue;  // far slower where anything else runs
      DeviceBuffer packed =
          to_device(cuda_conv2d_pack(conv, node.shape, node.params, node.weights), "weights", stream.get());
      DeviceBuffer scratch(std::max<size_t>(cuda_conv2d_workspace(conv, node.shape, images), 256), "a workspace");
      fill_device(scratch.data(), 0, scratch.bytes(), stream.get());
      stream.wait("preparing a benchmark");
      data.packed = packed.data(), data.workspace = scratch.data();
      const double us = bench_launches(stream, 8, repeats,
                                       [&](int) { cuda_conv2d(conv, node.shape, node.params, data, stream.get()); });
      if (best > 0 && us >= best) continue;
      best = us, conv_ = conv, packed_ = std::move(packed), scratch_ = std::move(scratch);
    }
  }
  const std::string& name() const { return conv_.name; }
  void launch(CudaConv2dData data, CudaStream stream) const {
    data.packed = packed_.data(), data.workspace = scratch_.data();
    cuda_conv2d(conv_, node_.shape, node_.params, data, stream);
  }

 private:
  ConvNode node_;
  CudaConv2d conv_;
  DeviceBuffer packed_, scratch_;
};

struct Times {
  double separate = 0, fused = 0;
};

struct Bench {
  int images, repeats;
  size_t rotate, tiles;
  int highest;
  std::string only;
};

Times run(const Layer& l, const Bench& bench, const Stream& stream) {
  const int images = bench.images, repeats = bench.repeats;
  Conv expand(l.in_c, l.hidden, l.size, 1, 1, false), depthwise(l.hidden, l.hidden, l.size, 3, l.stride, true);
  Conv project(l.hidden, l.out_c, depthwise.node.shape.out_h, 1, 1, false);
  expand.node.params.y.clamp_max = depthwise.node.params.y.clamp_max = bench.highest;
  project.node.params.has_residual = l.residual, project.node.params.residual_multiplier = 0.5f;
  const InvertedResidual block{l.expand, expand.node, depthwise.node, project.node};
  const Conv2dShape& in = block.first().shape;
  const size_t x_bytes = static_cast<size_t>(images) * in.in_h * in.in_w * in.in_stride;
  const size_t y_bytes = project.out_bytes(images), r_bytes = l.residual ? y_bytes : 0;
  const int copies = static_cast<int>(std::clamp<size_t>(bench.rotate / (x_bytes + y_bytes + r_bytes) + 1, 1, 64));
  const int launches = std::max(copies, images > 16 ? 10 : 40);
  const BenchTensors x(x_bytes, copies, stream), y(y_bytes, copies, stream), residual(r_bytes, copies, stream);
  const BenchTensors hidden(expand.out_bytes(images), 1, stream), windows(depthwise.out_bytes(images), 1, stream);
  const auto residual_of = [&](int i) { return l.residual ? residual.copy(i % copies) : nullptr; };

  const CudaConv2dData of_expand{.images = images, .x = x.copy(0), .y = hidden.copy(0)};
  const CudaConv2dData of_depthwise{.images = images, .x = l.expand ? hidden.copy(0) : x.copy(0), .y = windows.copy(0)};
  const CudaConv2dData of_project{.images = images, .x = windows.copy(0), .residual = residual_of(0), .y = y.copy(0)};
  const Fastest first(expand.node, images, of_expand, repeats, stream);
  const Fastest second(depthwise.node, images, of_depthwise, repeats, stream);
  const Fastest third(project.node, images, of_project, repeats, stream);
  Times times;
  times.separate = bench_launches(stream, launches, repeats, [&](int i) {
    CudaConv2dData a = of_expand, b = of_depthwise, c = of_project;
    (l.expand ? a.x : b.x) = x.copy(i % copies);
    c.residual = residual_of(i), c.y = y.copy(i % copies);
    if (l.expand) first.launch(a, stream.get());
    second.launch(b, stream.get());
    third.launch(c, stream.get());
  });

  const DeviceBuffer packed = to_device(cuda_inverted_residual_pack(block), "weights", stream.get());
  std::string all;
  std::string best[2];  // of tiles by blocks of their own, and in turns
  double least[2] = {0, 0};
  size_t tried[2] = {0, 0};
  for (const RankedTile& ranked : inverted_ranking(block, images, this_gpu())) {
    const int kind = ranked.tile.turns > 1;
    if (tried[kind] == bench.tiles) continue;
    const std::string name = ranked.tile.name().substr(std::string("inverted_residual_").size());
    if (!bench.only.empty() && name != bench.only) continue;
    ++tried[kind];
    const double us = bench_launches(stream, launches, repeats, [&](int i) {
      cuda_inverted_residual(ranked.tile, block,
                             {images, packed.data(), x.copy(i % copies), residual_of(i), y.copy(i % copies)},
                             stream.get());
    });
    all += fmt::format(" {}={:.1f}({:.1f})", name, us, ranked.clocks / 1755);
    if (least[kind] == 0 || us < least[kind]) least[kind] = us, best[kind] = name;
  }
  times.fused = least[1] > 0 && (least[0] == 0 || least[1] < least[0]) ? least[1] : least[0];
  fmt::print(
      "{}x {:3d} -> {:3d} -> {:3d}, {:3d}/{}{} separate {:6.1f} us ({}, {}, {}), fused {:6.1f} us {:.2f} {:5.0f} GB/s, "
      "a block a tile {:6.1f} us {}, in turns {:6.1f} us {} |{}\n",
      l.count, l.in_c, l.hidden, l.out_c, l.size, l.stride, l.residual ? " +res" : "     ", times.separate,
      l.expand ? first.name() : "-", second.name(), third.name(), times.fused, times.separate / times.fused,
      1e-3 * static_cast<double>(x_bytes + y_bytes + r_bytes) / times.fused, least[0], best[0], least[1], best[1], all);
  std::fflush(stdout);
  return times;
}

void run_all(const Bench& bench, size_t first, size_t last) {
  if (!gpu_status().usable) throw usage_error("needs a GPU: " + gpu_status().reason);
  fmt::print("{}, batch {}\n", gpu_status().name, bench.images);
  const Stream stream;
  Times sum;
  for (size_t i = first; i < std::min(last + 1, std::size(kLayers)); ++i) {
    const Times times = run(kLayers[i], bench, stream);
    sum.separate += times.separate * kLayers[i].count;
    sum.fused += std::min(times.fused, times.separate) * kLayers[i].count;
  }
  fmt::print("batch {}: separate {:.1f} us, the faster of both {:.1f} us\n", bench.images, sum.separate, sum.fused);
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int least, int otherwise) {
    return argc > i ? octet::whole_number(argv[i], least) : otherwise;
  };
  try {
    run_all({argument(1, 1, 128), argument(3, 1, 7), static_cast<size_t>(argument(2, 0, 256)) << 20,
             static_cast<size_t>(argument(4, 1, 8)), argument(7, 0, 255), argc > 8 ? argv[8] : ""},
            argument(5, 0, 0), argument(6, 0, 100));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_block_bench: {}\n", error.what());
    return 1;
  }
}
