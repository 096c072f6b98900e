// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/inverted_residual_case.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/groups/groups.h"
#include "kernels/groups/inverted_residual/plan.h"
#include "tests/kernels/random_codes.h"

namespace octet::kernels::testing {
namespace {

int one_of(std::mt19937& random, std::initializer_list<int> values) {
  return *(values.begin() + random() % values.size());
}

/// Returns ReLU6 for one of the activation schemes: from 0, from a zero point above 0, or signed from 0; clamped above
/// or not.
CodeOutput relu6(std::mt19937& random) {
  const int scheme = uniform(random, 0, 2), zero_point = scheme == 1 ? uniform(random, 1, 100) : 0;
  const int highest = scheme == 2 ? 127 : 255;
  return {zero_point, zero_point, random() % 2 ? highest : uniform(random, highest / 2, highest - 1), scheme == 2};
}

/// Fills weights, constants and tensors of c.images images, and keeps the quantization of the tensors.
void fill(ConvCase& c, std::mt19937& random, bool extreme) {
  const Conv2dParams params = c.params;
  fill_random(c, random, {.extreme = extreme});
  const float residual_multiplier = c.params.residual_multiplier;
  c.params = params;
  c.params.residual_multiplier = residual_multiplier;
  c.bind();
}

void connect(const ConvCase& from, ConvCase& to) {
  to.params.x = {from.params.y.zero_point, from.params.y.is_signed};
  to.shape.in_c = from.shape.out_c, to.shape.in_h = from.shape.out_h, to.shape.in_w = from.shape.out_w;
}

void strides(ConvCase& c) {
  c.shape.in_stride = cuda_channel_stride(c.shape.in_c), c.shape.out_stride = cuda_channel_stride(c.shape.out_c);
  c.shape.residual_stride = c.shape.out_stride;
}

/// Finishes a block whose first shapes, windows and edges are set.
void finish(BlockCase& c, std::mt19937& random, bool extreme) {
  if (c.has_expand) {
    infer_output(c.expand.shape);
    connect(c.expand, c.depthwise);
    strides(c.expand);
  }
  Conv2dShape& d = c.depthwise.shape;
  d.groups = d.out_c = d.in_c;
  strides(c.depthwise);
  if (d.out_h == 0) infer_output(d);
  connect(c.depthwise, c.project);
  infer_output(c.project.shape);
  strides(c.project);
  c.expand.images = c.has_expand ? c.images : 0;
  c.depthwise.images = c.has_expand ? 0 : c.images;
  c.project.images = c.images;
  for (ConvCase* conv : {&c.expand, &c.depthwise, &c.project}) {
    if (conv == &c.expand && !c.has_expand) continue;
    fill(*conv, random, extreme);
  }
}

/// The definition of an inverted residual: its convolutions one after the other, for one image. x: codes [H, W,
/// in_stride of the first]; residual: codes [OH, OW, residual_stride of project] or null; y: codes [OH, OW, out_stride
/// of project].
void reference(const InvertedResidual& block, const void* x, const void* residual, void* y) {
  const auto run = [](const ConvNode& conv, int in_stride, const void* in) {
    Conv2dShape shape = conv.shape;
    shape.in_stride = in_stride, shape.out_stride = shape.out_c;
    std::vector<uint8_t> out(static_cast<size_t>(shape.out_h) * shape.out_w * shape.out_c);
    conv2d_int8_reference(shape, conv.params, conv.weights, in, nullptr, out.data());
    return out;
  };
  std::vector<uint8_t> hidden;
  if (block.has_expand) hidden = run(block.expand, block.expand.shape.in_stride, x);
  const std::vector<uint8_t> windows =
      run(block.depthwise, block.has_expand ? block.depthwise.shape.in_c : block.depthwise.shape.in_stride,
          block.has_expand ? hidden.data() : x);
  Conv2dShape last = block.project.shape;
  last.in_stride = last.in_c;
  conv2d_int8_reference(last, block.project.params, block.project.weights, windows.data(), residual, y);
}

}  // namespace

InvertedResidual BlockCase::block() const {
  const auto node = [](const ConvCase& c) { return ConvNode{c.shape, c.params, c.weights}; };
  return {has_expand, node(expand), node(depthwise), node(project)};
}

std::string BlockCase::describe() const {
  return (has_expand ? "expand: " + expand.describe() + "; " : std::string()) + "depthwise: " + depthwise.describe() +
         "; project: " + project.describe();
}

BlockCase make_block(const BlockShape& shape, int images, Edges edges, std::mt19937& random) {
  BlockCase c;
  c.has_expand = shape.expand, c.images = images;
  c.expand.shape = {.in_c = shape.in_c, .in_h = shape.height, .in_w = shape.width, .out_c = shape.hidden};
  c.depthwise.shape = {.in_c = shape.expand ? shape.hidden : shape.in_c, .in_h = shape.height, .in_w = shape.width};
  Conv2dShape& d = c.depthwise.shape;
  d.kernel_h = d.kernel_w = 3, d.stride_h = d.stride_w = shape.stride, d.pad_h = d.pad_w = 1;
  c.project.shape.out_c = shape.out_c;
  c.project.params.has_residual = shape.residual;
  const bool any = edges == Edges::any;
  c.expand.params.x = c.depthwise.params.x = any ? random_input(random) : CodeInput{uniform(random, 80, 160), false};
  c.project.params.residual = any ? random_input(random) : CodeInput{uniform(random, 80, 160), false};
  c.expand.params.y = any ? random_output(random) : relu6(random);
  c.depthwise.params.y = any ? random_output(random) : relu6(random);
  c.project.params.y = any ? random_output(random) : CodeOutput{uniform(random, 80, 160), 0, 255, false};
  finish(c, random, any && random() % 6 == 0);
  return c;
}

BlockCase random_block(std::mt19937& random) {
  BlockShape shape;
  shape.expand = random() % 5 != 0;
  shape.in_c = one_of(random, {8, 16, 17, 24, 32, 40, 64, 96, 100, 160});
  shape.hidden = one_of(random, {8, 24, 32, 40, 72, 96, 100, 144});
  shape.out_c = one_of(random, {5, 8, 16, 24, 32, 40, 64, 96, 100, 128, 160});
  shape.height = uniform(random, 1, 20), shape.width = uniform(random, 1, 20);
  shape.stride = uniform(random, 1, 2);
  shape.residual = random() & 1;  // of any kind: the engine asks for no more than equal shapes
  BlockCase c = make_block(shape, one_of(random, {1, 2, 5}), Edges::any, random);
  if (random() % 3 != 0) return c;
  // Windows that leave the image by different amounts, on one side only, or not at all.
  Conv2dShape& d = c.depthwise.shape;
  d.pad_h = uniform(random, 0, 2), d.pad_w = uniform(random, 0, 2);
  if (d.in_h + d.pad_h < 3) d.pad_h = 2;
  if (d.in_w + d.pad_w < 3) d.pad_w = 2;
  infer_output(d, random);
  const Conv2dShape narrow = c.project.shape;
  c.project.shape = {.out_c = narrow.out_c};
  finish(c, random, random() % 6 == 0);
  return c;
}

CudaInvertedResidual random_tile(const BlockCase& c, int shared_limit, std::mt19937& random) {
  const InvertedResidual block = c.block();
  const Conv2dShape& out = block.project.shape;
  const int most_rows = inverted_max_rows(inverted_quads(out.out_c));
  const int chunks = ceil_div(block.depthwise.shape.out_c, kHiddenChunk);
  for (int tries = 0;; ++tries) {
    CudaInvertedResidual tile;
    tile.rows = std::min(most_rows, 1 << uniform(random, 0, 2));
    tile.width = uniform(random, 1, out.out_w);
    tile.strips = uniform(random, 1, ceil_div(out.out_h, tile.rows));
    // From two tiles of a place to more than all tiles there are; not all blocks have such a tile.
    if (random() % 2 && tries < 20) {
      tile.images = inverted_turn_images(c.has_expand);
      tile.turns = uniform(random, 2, 2 * c.images + 3);
      if (inverted_turns_fit(tile, block, c.images, shared_limit)) return tile;
      continue;
    }
    if (tile.width == out.out_w && tile.strips * tile.rows >= out.out_h) tile.images = uniform(random, 1, c.images);
    tile.parts = random() & 1 ? 1 : uniform(random, 1, std::min(chunks, kMaxParts));
    const InvertedTiles tiles(tile, block, c.images);
    if (random() & 1) tile.groups = uniform(random, 1, std::min(chunks / tile.parts, 3));
    if (tiles.warps * tile.groups <= kMaxWarps && InvertedShared(tile, block, c.images).bytes <= shared_limit)
      return tile;
  }
}

std::vector<BlockShape> mobilenet_v2_blocks() {
  return {
      {32, 32, 16, 112, 112, 1, false},     {16, 96, 24, 112, 112, 2},
      {24, 144, 24, 56, 56, 1, true, true}, {24, 144, 32, 56, 56, 2},
      {32, 192, 32, 28, 28, 1, true, true}, {32, 192, 64, 28, 28, 2},
      {64, 384, 64, 14, 14, 1, true, true}, {64, 384, 96, 14, 14, 1},
      {96, 576, 96, 14, 14, 1, true, true}, {96, 576, 160, 14, 14, 2},
      {160, 960, 160, 7, 7, 1, true, true},
  };
}

std::vector<uint8_t> run_block_reference(const BlockCase& c) {
  const Conv2dShape &in = c.first().shape, &out = c.project.shape;
  const size_t in_bytes = static_cast<size_t>(in.in_h) * in.in_w * in.in_stride;
  const size_t pixels = static_cast<size_t>(out.out_h) * out.out_w;
  std::vector<uint8_t> y(c.images * pixels * out.out_stride, kCanary);
  const InvertedResidual block = c.block();
  for (int i = 0; i < c.images; ++i) {
    const uint8_t* residual =
        c.project.params.has_residual ? c.project.residual.data() + i * pixels * out.residual_stride : nullptr;
    reference(block, c.first().x.data() + i * in_bytes, residual, y.data() + i * pixels * out.out_stride);
  }
  return y;
}

std::string block_difference(const BlockCase& c, const std::string& variant, const std::vector<uint8_t>& actual,
                             const std::vector<uint8_t>& expected) {
  const size_t stride = c.project.shape.out_stride, channels = c.project.shape.out_c;
  const size_t writable = (channels + 15) / 16 * 16;
  for (size_t i = 0; i < expected.size(); ++i) {
    const size_t lane = i % stride;
    if ((lane >= channels && lane < writable) || actual[i] == expected[i]) continue;
    return variant + ": byte " + std::to_string(i) + " of " + std::to_string(actual.size()) + " is " +
           std::to_string(actual[i]) + ", not " + std::to_string(expected[i]) + "; " + c.describe();
  }
  return "";
}

}  // namespace octet::kernels::testing
