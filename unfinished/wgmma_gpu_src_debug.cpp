// Where a wgmma kernel goes wrong: runs shapes from simple to hard through every tile and prints, of each that differs
// from the reference, how many codes differ, the first ones, and which rows of 64, channels of 64 and images they are in.
//   debug SHAPE [tile]       shapes are numbered; `debug list` prints them. A negative tile: those that hold weights.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "kernels/conv2d_int8/cuda/wgmma/held.h"
#include "kernels/conv2d_int8/cuda/wgmma/wgmma.h"
#include "src/cuda/device.h"
#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "tests/kernels/conv2d_cuda.h"

using namespace octet;                    // NOLINT
using namespace octet::kernels;           // NOLINT
using namespace octet::kernels::testing;  // NOLINT

struct Named {
  const char* name;
  Conv2dShape shape;
  int images;
  bool residual, zero_point;
};

const Named kShapes[] = {
    {"1x1, one step", {.in_c = 64, .in_h = 8, .in_w = 8, .out_c = 64}, 1, false, false},
    {"1x1, one step, 128 channels out", {.in_c = 128, .in_h = 8, .in_w = 16, .out_c = 128}, 1, false, false},
    {"1x1, many steps and tiles", {.in_c = 512, .in_h = 28, .in_w = 28, .out_c = 256}, 4, false, false},
    {"1x1, few channels", {.in_c = 24, .in_h = 9, .in_w = 7, .out_c = 40}, 3, false, false},
    {"1x1, residual, zero point", {.in_c = 64, .in_h = 28, .in_w = 28, .out_c = 256}, 4, true, true},
    {"1x1 stride 2", {.in_c = 64, .in_h = 28, .in_w = 28, .out_c = 64, .stride_h = 2, .stride_w = 2}, 2, false, false},
    {"3x3, no padding", {.in_c = 64, .in_h = 16, .in_w = 16, .out_c = 64, .kernel_h = 3, .kernel_w = 3}, 2, false, false},
    {"3x3, padding 1", {.in_c = 64, .in_h = 14, .in_w = 14, .out_c = 64, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1}, 2, false, false},
    {"3x3, padding 1, 128 channels, zero point", {.in_c = 128, .in_h = 28, .in_w = 28, .out_c = 128, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1}, 3, false, true},
    {"3x3 stride 2, padding 1", {.in_c = 128, .in_h = 28, .in_w = 28, .out_c = 128, .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1}, 3, false, true},
    {"5x3, pads 2 and 0, dilation 2 and 1", {.in_c = 96, .in_h = 19, .in_w = 11, .out_c = 80, .kernel_h = 5, .kernel_w = 3, .pad_h = 2, .pad_w = 0, .dilation_h = 2, .dilation_w = 1}, 3, true, true},
    {"3x3 on 7x7, 512 channels", {.in_c = 512, .in_h = 7, .in_w = 7, .out_c = 512, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1}, 7, true, true},
};

std::vector<uint8_t> run(const ConvCase& c, const CudaConvFamily& family, const CudaConv2d& conv) {
  const Stream stream;
  const std::vector<uint8_t> packed_bytes = family.pack(conv, c.shape, c.params);
  auto upload = [&](const std::vector<uint8_t>& bytes) {
    DeviceBuffer b(bytes.size() + kCudaReadSlack, "debug");
    copy_to_device(b.data(), bytes.data(), bytes.size(), stream.get());
    return b;
  };
  const std::vector<uint8_t> poison(static_cast<size_t>(c.images) * c.shape.out_h * c.shape.out_w * c.shape.out_stride, kCanary);
  std::vector<uint8_t> scratch(family.workspace ? family.workspace(conv, c.shape, c.images) : 0, 0xEE);
  std::fill_n(scratch.begin(), std::min(scratch.size(), kCudaWorkspaceZeros), uint8_t{0});
  const DeviceBuffer packed = upload(packed_bytes), x = upload(c.x), residual = upload(c.residual), y = upload(poison),
                     workspace = upload(scratch);
  family.launch(conv, c.shape, c.params, {c.images, packed.data(), x.data(), c.params.has_residual ? residual.data() : nullptr, y.data(), workspace.data()}, stream.get());
  std::vector<uint8_t> out(poison.size());
  copy_to_host(out.data(), y.data(), out.size(), stream.get());
  stream.wait("debugging");
  return out;
}

void compare(const ConvCase& c, const std::string& name, const std::vector<uint8_t>& got, const std::vector<uint8_t>& want) {
  const int stride = c.shape.out_stride, pixels = static_cast<int>(got.size()) / stride;
  long wrong = 0, unwritten = 0;
  std::string first;
  std::set<int> rows, channels, tiles;
  for (int p = 0; p < pixels; ++p)
    for (int k = 0; k < c.shape.out_c; ++k) {
      const size_t i = static_cast<size_t>(p) * stride + k;
      if (got[i] == want[i]) continue;
      unwritten += got[i] == kCanary;
      if (++wrong <= 6) first += " (" + std::to_string(p) + "," + std::to_string(k) + ": " + std::to_string(got[i]) + " not " + std::to_string(want[i]) + ")";
      rows.insert(p % 64), channels.insert(k % 64), tiles.insert(p / 64);
    }
  if (wrong == 0) {
    printf("  %-44s right\n", name.c_str());
    return;
  }
  auto some = [](const std::set<int>& s) {
    std::string t = std::to_string(s.size()) + ":";
    int n = 0;
    for (int v : s) {
      if (n++ == 12) break;
      t += " " + std::to_string(v);
    }
    return t;
  };
  printf("  %-44s WRONG %ld of %ld, %ld unwritten;%s\n      rows of 64 {%s} channels of 64 {%s} blocks of 64 pixels {%s}\n", name.c_str(), wrong,
         static_cast<long>(pixels) * c.shape.out_c, unwritten, first.c_str(), some(rows).c_str(), some(channels).c_str(), some(tiles).c_str());
}

int main(int argc, char** argv) {
  const int count = sizeof(kShapes) / sizeof(kShapes[0]);
  const std::string what = argc > 1 ? argv[1] : "list";
  if (what == "list") {
    for (int i = 0; i < count; ++i) printf("%d %s\n", i, kShapes[i].name);
    return 0;
  }
  const Named& n = kShapes[std::atoi(what.c_str()) % count];
  std::mt19937 random(7);
  ConvCase c;
  c.shape = n.shape;
  infer_output(c.shape);
  use_cuda_strides(c);
  c.images = n.images;
  c.params.has_residual = n.residual;
  c.params.x_zero_point = n.zero_point ? 77 : 0;
  c.params.residual_zero_point = 90;
  fill_random(c, random);
  const std::vector<uint8_t> want = run_reference(c);
  printf("shape %s: %s\n", what.c_str(), n.name);
  const bool all = argc <= 2;
  const int only = all ? 0 : std::atoi(argv[2]);
  for (int tile = 0; tile < static_cast<int>(kWgmmaTiles.size()); ++tile) {
    if (!all && only != tile) continue;
    for (const int split : {1, 2}) {
      if (split > wgmma_max_split(WgmmaGrid(kWgmmaTiles[tile], c.shape, c.images))) continue;
      const CudaConv2d conv = wgmma_choice(tile, split);
      compare(c, conv.name, run(c, cuda_wgmma_family(), conv), want);
      fflush(stdout);
    }
  }
  for (int tile = 0; tile < static_cast<int>(kHeldTiles.size()); ++tile) {
    if (!all && only != -1 - tile) continue;
    for (const bool shifted : {false, true}) {
      if (!held_supports(tile, shifted, c.shape, c.images)) continue;
      const CudaConv2d conv = held_choice(tile, shifted);
      compare(c, conv.name, run(c, cuda_wgmma_held_family(), conv), want);
      fflush(stdout);
    }
  }
}
