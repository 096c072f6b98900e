// SPDX-License-Identifier: Apache-2.0
// Slices with steps and SpaceToDepth between codes: the same codes at other places.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "tests/engine/random_network.h"
#include "tests/net/onnx/read_qdq.h"

namespace octet {
namespace {

using namespace test;

constexpr int kChannels = 3, kHeight = 8, kWidth = 6;
constexpr float kScale = 0.013f;  // no power of two

class Codes {
 public:
  explicit Codes(const std::vector<uint8_t>& codes) : codes_(codes) {}
  /// Returns a code; they are stored as NHWC.
  int at(const Int8Node& node, int image, int row, int column, int channel) const {
    const Shape& s = node.shape;
    return codes_.at(((static_cast<size_t>(image) * s.h + row) * s.w + column) * s.c + channel);
  }

 private:
  const std::vector<uint8_t>& codes_;
};

/// The image's codes under the name image_q.
ModelBuilder with_image() {
  ModelBuilder model({kChannels, kHeight, kWidth});
  model.scalar("scale", kScale);
  model.codes("zero", {7}, /*is_signed=*/false);
  quantized(model, "image", "scale", "zero");
  return model;
}

void slice(ModelBuilder& model, const std::string& x, const std::string& y, const std::array<int64_t, 2>& first,
           const std::array<int64_t, 2>& step) {
  model.integers(y + "_from", {first[0], first[1]});
  model.integers(y + "_to", std::vector<int64_t>(2, std::numeric_limits<int64_t>::max()));
  model.integers(y + "_axes", {2, 3});
  model.integers(y + "_steps", {step[0], step[1]});
  model.node("Slice", {x, y + "_from", y + "_to", y + "_axes", y + "_steps"}, y);
}

/// A last layer whose output are reals, so that what stands before it are codes.
Int8Graph finished(ModelBuilder& model, const std::string& x) {
  model.node("GlobalAveragePool", {x}, "y");
  return parsed(model.bytes("y")).graph;
}

/// YOLOv5's first layer, with the scale once more behind each Slice or none.
TEST(QdqSlices, TheFourPixelsOfABlockKeepTheirCodes) {
  for (const bool marked : {false, true}) {
    ModelBuilder model = with_image();
    std::vector<std::string> parts;
    for (const int64_t column : {0, 1})
      for (const int64_t row : {0, 1}) {
        parts.push_back("part" + std::to_string(parts.size()));
        slice(model, "image_q", parts.back(), {row, column}, {2, 2});
        if (!marked) continue;
        quantized(model, parts.back(), "scale", "zero");
        parts.back() += "_q";
      }
    model.node("Concat", parts, "blocks").integer("axis", 1);
    quantized(model, "blocks", "scale", "zero");
    const Int8Graph graph = finished(model, "blocks_q");
    const auto all = codes_of(graph, random_images(graph, kBatch, 5));
    const Int8Node& blocks = graph.nodes[graph.nodes.size() - 2];
    ASSERT_EQ(blocks.shape, (Shape{4 * kChannels, kHeight / 2, kWidth / 2}));
    const Codes whole(all.at("input codes")), found(all.at(blocks.name));
    for (int n = 0; n < kBatch; ++n)
      for (int y = 0; y < kHeight; ++y)
        for (int x = 0; x < kWidth; ++x)
          for (int c = 0; c < kChannels; ++c)
            EXPECT_EQ(found.at(blocks, n, y / 2, x / 2, (x % 2 * 2 + y % 2) * kChannels + c),
                      whole.at(graph.nodes[0], n, y, x, c));
  }
}

TEST(QdqSlices, SpaceToDepthKeepsCodes) {
  for (const bool marked : {false, true}) {
    ModelBuilder model = with_image();
    model.node("SpaceToDepth", {"image_q"}, "blocks").integer("blocksize", 2);
    if (marked) quantized(model, "blocks", "scale", "zero");
    const Int8Graph graph = finished(model, marked ? "blocks_q" : "blocks");
    const auto all = codes_of(graph, random_images(graph, kBatch, 5));
    const Int8Node& blocks = graph.nodes[graph.nodes.size() - 2];
    const Codes whole(all.at("input codes")), found(all.at(blocks.name));
    for (int n = 0; n < kBatch; ++n)
      for (int y = 0; y < kHeight; ++y)
        for (int x = 0; x < kWidth; ++x)
          for (int c = 0; c < kChannels; ++c)
            EXPECT_EQ(found.at(blocks, n, y / 2, x / 2, (y % 2 * 2 + x % 2) * kChannels + c),
                      whole.at(graph.nodes[0], n, y, x, c));
  }
}

/// Another scale behind the Slice: other codes for the same values.
TEST(QdqSlices, ASliceMayHaveAScaleOfItsOwn) {
  ModelBuilder model = with_image();
  model.scalar("coarser", 3 * kScale);
  slice(model, "image_q", "part", {1, 2}, {3, 1});
  quantized(model, "part", "coarser", "zero");
  const Int8Graph graph = finished(model, "part_q");
  const auto all = codes_of(graph, random_images(graph, kBatch, 5));
  const Int8Node& part = graph.nodes[graph.nodes.size() - 2];
  ASSERT_EQ(part.shape, (Shape{kChannels, 3, kWidth - 2}));
  const Codes whole(all.at("input codes")), found(all.at(part.name));
  for (int y = 0; y < 3; ++y)
    for (int x = 0; x < kWidth - 2; ++x)
      EXPECT_EQ(found.at(part, 1, y, x, 2),
                7 + static_cast<int>(std::nearbyint((whole.at(graph.nodes[0], 1, 1 + 3 * y, 2 + x, 2) - 7) / 3.0)));
}

}  // namespace
}  // namespace octet
