// SPDX-License-Identifier: Apache-2.0
// Slice of rows and columns, and the Pad of channels behind it: option A's shortcut, as exporters write it.
#include <ATen/ATen.h>

#include <array>
#include <limits>

#include "tests/error_of.h"
#include "tests/net/onnx/outputs.h"

namespace octet {
namespace {

using namespace test;

constexpr int64_t kToTheEnd = std::numeric_limits<int64_t>::max();

/// x[..., first::step] along `axes`, under the name `y`.
void slice(ModelBuilder& model, const std::string& x, const std::string& y, const std::vector<int64_t>& axes,
           const std::vector<int64_t>& first, const std::vector<int64_t>& steps) {
  model.integers(y + "_from", first);
  model.integers(y + "_to", std::vector<int64_t>(axes.size(), kToTheEnd));
  model.integers(y + "_axes", axes);
  model.integers(y + "_steps", steps);
  model.node("Slice", {x, y + "_from", y + "_to", y + "_axes", y + "_steps"}, y);
}

/// x[:, :, ::2, ::2] is two nodes in both of PyTorch's exporters.
void two_slices(ModelBuilder& model, const std::string& x) {
  slice(model, x, "rows", {2}, {0}, {2});
  slice(model, "rows", "pixels", {3}, {0}, {2});
}

at::Tensor option_a(const at::Tensor& x, int64_t channels) {
  return at::constant_pad_nd(x.slice(2, 0, kToTheEnd, 2).slice(3, 0, kToTheEnd, 2), {0, 0, 0, 0, channels, channels});
}

void expect_option_a(const ImportedNetwork& network, const at::Tensor& x, int64_t channels) {
  ASSERT_EQ(network.graph.nodes.size(), 2u);
  EXPECT_EQ(network.graph.nodes[1].op, Op::subsample_pad);
  EXPECT_TRUE(outputs(network, x).equal(option_a(x, channels).reshape({2, -1})));
}

TEST(OnnxSlices, EveryNthRowOrColumn) {
  const at::Tensor x = images(3, 8, 9);
  for (const int64_t axis : {2, 3}) {
    for (const int64_t step : {2, 3}) {
      for (int64_t first = 0; first < step; ++first) {
        ModelBuilder model({3, 8, 9});
        slice(model, "image", "y", {axis}, {first}, {step});
        const ImportedNetwork network = imported(model.bytes("y"));
        EXPECT_EQ(network.graph.nodes.back().op, first == 0 ? Op::subsample_pad : Op::conv2d);
        const at::Tensor expected = x.slice(axis, first, 100, step);
        EXPECT_TRUE(outputs(network, x).equal(expected.reshape({2, -1}))) << axis << step << first;
      }
    }
  }
}

/// YOLOv5's first layer: by an exporter (rows, then columns, the rows shared) and as simplifiers join the two.
TEST(OnnxSlices, TheFourPixelsOfABlockAsChannels) {
  const at::Tensor x = images(3, 8, 9);
  const auto part = [&](int64_t row, int64_t column) { return x.slice(2, row, 100, 2).slice(3, column, 8, 2); };
  const at::Tensor expected = at::cat({part(0, 0), part(1, 0), part(0, 1), part(1, 1)}, 1);
  const at::Tensor narrow = x.slice(3, 0, 8);
  for (const bool joined : {false, true}) {
    ModelBuilder model({3, 8, 8});
    for (const int64_t row : {0, 1}) {
      const std::string name = row == 0 ? "even" : "odd";
      if (!joined) slice(model, "image", name, {2}, {row}, {2});
      for (const int64_t column : {0, 1}) {
        const std::string y = name + std::to_string(column);
        if (joined) slice(model, "image", y, {2, 3}, {row, column}, {2, 2});
        if (!joined) slice(model, name, y, {3}, {column}, {2});
      }
    }
    model.node("Concat", {"even0", "odd0", "even1", "odd1"}, "y").integer("axis", 1);
    EXPECT_TRUE(outputs(imported(model.bytes("y")), narrow).equal(expected.reshape({2, -1}))) << joined;
  }
}

TEST(OnnxSlices, APadOfChannelsBehindIsOptionA) {
  const at::Tensor x = images(3, 7, 8);
  ModelBuilder two({3, 7, 8});
  two_slices(two, "image");
  two.integers("pads", {0, 4, 0, 0, 0, 4, 0, 0});
  two.node("Pad", {"pixels", "pads"}, "y");
  expect_option_a(imported(two.bytes("y")), x, 4);

  ModelBuilder one({3, 7, 8});
  slice(one, "image", "pixels", {2, 3}, {0, 0}, {2, 2});
  one.integers("pads", {0, 1, 0, 0, 0, 1, 0, 0});
  one.scalar("zero", 0);
  one.node("Pad", {"pixels", "pads", "zero"}, "y").text("mode", "constant");
  expect_option_a(imported(one.bytes("y")), x, 1);
}

/// F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2)) by the TorchScript exporter, which turns PyTorch's pads by nodes.
TEST(OnnxSlices, PadsMayBeComputedInTheFile) {
  const at::Tensor x = images(3, 7, 8);
  ModelBuilder model({3, 7, 8});
  two_slices(model, "image");
  model.integers("given", {0, 0, 0, 0, 2, 2});
  model.integers("two", {2});
  model.integers("by_two", {-1, 2});
  model.integers("row", {-1});
  model.integers("last", {-1});
  model.integers("before_the_first", {-kToTheEnd});
  model.integers("axis", {0});
  model.integers("back", {-1});
  model.node("ConstantOfShape", {"two"}, "images").value(0);
  model.node("Concat", {"given", "images"}, "all").integer("axis", 0);
  model.node("Reshape", {"all", "by_two"}, "pairs").integer("allowzero", 0);
  model.node("Slice", {"pairs", "last", "before_the_first", "axis", "back"}, "turned");
  model.node("Transpose", {"turned"}, "columns").ints("perm", {1, 0});
  model.node("Reshape", {"columns", "row"}, "flat").integer("allowzero", 0);
  model.node("Cast", {"flat"}, "pads").integer("to", 7);
  model.node("Pad", {"pixels", "pads"}, "y").text("mode", "constant");
  expect_option_a(imported(model.bytes("y")), x, 2);
}

/// Whatever range and step of rows, columns and channels, all at once.
TEST(OnnxSlices, AnyRangeOfEveryAxis) {
  const at::Tensor x = images(12, 9, 7);
  struct Part {
    int64_t from, to, step;
  };
  const Part rows[] = {{0, 9, 1}, {3, 9, 2}, {1, -2, 1}, {2, 8, 4}, {-1, 100, 1}, {0, 5, 2}, {0, 100, 300}};
  const Part columns[] = {{0, 7, 1}, {5, 7, 1}, {1, 6, 3}, {0, -1, 2}};
  const Part channels[] = {{0, 12, 1}, {1, 12, 3}, {4, 9, 4}, {-3, 12, 1}};
  for (const Part& r : rows)
    for (const Part& s : columns)
      for (const Part& c : channels) {
        ModelBuilder model({12, 9, 7});
        model.integers("from", {c.from, r.from, s.from});
        model.integers("to", {c.to, r.to, s.to});
        model.integers("axes", {1, 2, 3});
        model.integers("steps", {c.step, r.step, s.step});
        model.node("Slice", {"image", "from", "to", "axes", "steps"}, "y");
        const at::Tensor expected =
            x.slice(1, c.from, c.to, c.step).slice(2, r.from, r.to, r.step).slice(3, s.from, s.to, s.step);
        EXPECT_TRUE(outputs(imported(model.bytes("y")), x).equal(expected.reshape({2, -1})))
            << r.from << ":" << r.to << ":" << r.step << ", " << s.from << ":" << s.to << ":" << s.step << ", "
            << c.from << ":" << c.to << ":" << c.step;
      }
}

/// Pixel (i, j) of each block of channel c becomes channel (i * block + j) * C + c.
TEST(OnnxSlices, SpaceToDepth) {
  const at::Tensor x = images(3, 12, 6);
  for (const int64_t block : {2, 3}) {
    ModelBuilder model({3, 12, 6});
    model.node("SpaceToDepth", {"image"}, "y").integer("blocksize", block);
    const at::Tensor blocks = x.view({2, 3, 12 / block, block, 6 / block, block});
    const at::Tensor expected = blocks.permute({0, 3, 5, 1, 2, 4}).reshape({2, -1});
    EXPECT_TRUE(outputs(imported(model.bytes("y")), x).equal(expected)) << block;
  }
  ModelBuilder uneven({3, 12, 6});
  uneven.node("SpaceToDepth", {"image"}, "y").integer("blocksize", 4);
  EXPECT_NE(error_of([&] { imported(uneven.bytes("y")); }).find("12x6 pixels in blocks of 4"), std::string::npos);
}

/// A Slice that others read too stays; so does one whose stride would multiply.
TEST(OnnxSlices, WhatIsReadElsewhereStays) {
  const at::Tensor x = images(3, 8, 8);
  ModelBuilder model({3, 8, 8});
  slice(model, "image", "rows", {2}, {0}, {2});
  slice(model, "rows", "again", {2}, {0}, {2});
  model.integers("pads", {0, 1, 0, 0, 0, 1, 0, 0});
  model.node("Pad", {"rows", "pads"}, "more");
  model.node("GlobalAveragePool", {"more"}, "a");
  model.node("GlobalAveragePool", {"again"}, "b");
  model.node("Concat", {"a", "b"}, "y").integer("axis", 1);
  const at::Tensor rows = x.slice(2, 0, 8, 2);
  const at::Tensor mean = rows.mean({2, 3});
  expect_close(outputs(imported(model.bytes("y")), x),
               at::cat({at::constant_pad_nd(mean, {1, 1}), rows.slice(2, 0, 4, 2).mean({2, 3})}, 1));
}

TEST(OnnxSlices, WhatIsNotImportedIsNamed) {
  const auto padded = [](const std::vector<int64_t>& pads) {
    ModelBuilder model;
    model.integers("pads", pads);
    model.node("Pad", {"image", "pads"}, "y");
    return error_of([&] { imported(model.bytes("y")); });
  };
  for (const std::vector<int64_t>& pads : std::vector<std::vector<int64_t>>{
           {0, 0, 0, 0, 0, 2, 0, 0}, {0, 1, 1, 0, 0, 1, 0, 0}, {1, 1, 0, 0, 1, 1, 0, 0}, {0, -1, 0, 0, 0, -1, 0, 0}})
    EXPECT_NE(padded(pads).find("as many channels before as behind"), std::string::npos) << padded(pads);

  ModelBuilder twice;
  slice(twice, "image", "y", {2, -2}, {1, 0}, {1, 2});
  EXPECT_NE(error_of([&] { imported(twice.bytes("y")); }).find("names axis 2 twice"), std::string::npos);
}

}  // namespace
}  // namespace octet
