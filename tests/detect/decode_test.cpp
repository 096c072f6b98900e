// SPDX-License-Identifier: Apache-2.0
// From outputs to boxes: both heads by hand, codes as floats, suppression, and the way back from the network's input.
#include "src/detect/decode.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "kernels/core/quantize.h"
#include "tests/detect/detector.h"
#include "tests/error_of.h"

namespace octet {
namespace {

using test::detector;

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

/// The outputs of one image, all of one value but for what a test sets.
struct Crafted {
  Crafted(const Int8Graph& of, float value) : graph(of) {
    for (const int node : graph.outputs)
      values.emplace_back(static_cast<size_t>(graph.nodes[static_cast<size_t>(node)].shape.elements()), value);
  }
  float& at(int place, int y, int x, int channel) {
    const Shape& shape = graph.nodes[static_cast<size_t>(graph.outputs[static_cast<size_t>(place)])].shape;
    return values[static_cast<size_t>(place)][static_cast<size_t>((y * shape.w + x) * shape.c + channel)];
  }
  BatchOutputs bytes() const {
    BatchOutputs result;
    for (const std::vector<float>& of : values) {
      result.emplace_back(of.size() * sizeof(float));
      std::memcpy(result.back().data(), of.data(), result.back().size());
    }
    return result;
  }
  const Int8Graph& graph;
  std::vector<std::vector<float>> values;
};

void expect_box(const Detection& got, const Box& box, int class_index, double score) {
  constexpr double kPixels = 1e-4;
  EXPECT_NEAR(got.box.x, box.x, kPixels);
  EXPECT_NEAR(got.box.y, box.y, kPixels);
  EXPECT_NEAR(got.box.width, box.width, kPixels);
  EXPECT_NEAR(got.box.height, box.height, kPixels);
  EXPECT_EQ(got.class_index, class_index);
  EXPECT_NEAR(got.score, score, 1e-6);
}

TEST(DecodeBoxes, OfYoloxAreCentresAndSizesInStrides) {
  const Int8Graph graph = detector(BoxHeadKind::yolox, 48, 64, {8, 16}, 3);
  EXPECT_EQ(error_of([&] { validate(graph); }), "");
  Crafted outputs(graph, -20);
  const BoxHead::Level& level = graph.boxes->levels[1];
  const float box[] = {0.75f, 0.25f, std::log(1.5f), std::log(3.0f)};
  for (int i = 0; i < 4; ++i) outputs.at(level.boxes, 1, 2, i) = box[i];
  outputs.at(level.objectness, 1, 2, 0) = 2;
  outputs.at(level.classes, 1, 2, 2) = 1;
  // centre (2.75 * 16, 1.25 * 16), size (24, 48): from y = -4, of which 0 on is in the image
  const auto found = decode_boxes(graph, outputs.bytes(), 0, {48, 64}, {.score_threshold = 0.1, .iou_threshold = 0.5});
  ASSERT_EQ(found.size(), 1u);
  expect_box(found[0], {32, 0, 24, 44}, 2, sigmoid_of(2) * sigmoid_of(1));
}

TEST(DecodeBoxes, OfDistancesAreMeansOverTheirBins) {
  const Int8Graph graph = detector(BoxHeadKind::yolo_dfl, 64, 64, {8}, 2);
  EXPECT_EQ(error_of([&] { validate(graph); }), "");
  Crafted outputs(graph, -50);
  const BoxHead::Level& level = graph.boxes->levels[0];
  // left 1.5 (half of it in bin 1, half in bin 2), top 2, right 3, bottom 4, from (4.5, 3.5) in cells of 8 pixels
  for (const auto& [side, bin] : {std::pair{0, 1}, std::pair{0, 2}, std::pair{1, 2}, std::pair{2, 3}, std::pair{3, 4}})
    outputs.at(level.boxes, 3, 4, side * kDistanceBins + bin) = 5;
  outputs.at(level.classes, 3, 4, 1) = 0.5;
  const auto found = decode_boxes(graph, outputs.bytes(), 0, {64, 64}, {.score_threshold = 0.1, .iou_threshold = 0.5});
  ASSERT_EQ(found.size(), 1u);
  expect_box(found[0], {24, 12, 36, 48}, 1, sigmoid_of(0.5));
}

TEST(DecodeBoxes, OfCodesAreThoseOfTheirValues) {
  Int8Graph graph = detector(BoxHeadKind::yolox, 32, 32, {8}, 4);
  Crafted floats(graph, 0);
  BatchOutputs codes;
  uint32_t random = 1;
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    Int8Node& node = test::output_of(graph, static_cast<int>(o));
    const bool is_signed = o % 2 == 0;
    node.out = {.scale = 0.03f,
                .zero_point = is_signed ? -3 : 130,
                .quant_min = is_signed ? -128 : 0,
                .quant_max = is_signed ? 127 : 255};
    codes.emplace_back();
    for (float& value : floats.values[o]) {
      random = random * 1664525 + 1013904223;
      codes.back().push_back(static_cast<uint8_t>(random >> 24));
      value = dequantize(is_signed ? static_cast<int8_t>(codes.back().back()) : codes.back().back(), node.out);
    }
  }
  const BoxOptions options{.score_threshold = 0.05, .iou_threshold = 0.6, .every_class = true};
  const auto expected = decode_boxes(graph, floats.bytes(), 0, {40, 50}, options);
  for (const int output : graph.outputs) graph.nodes[static_cast<size_t>(output)].float_output = false;
  const auto got = decode_boxes(graph, codes, 0, {40, 50}, options);
  ASSERT_GT(expected.size(), 5u);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].box, expected[i].box);
    EXPECT_EQ(got[i].score, expected[i].score);
  }
}

TEST(DecodeBoxes, ACellGivesItsBestClassOrEveryOne) {
  const Int8Graph graph = detector(BoxHeadKind::yolox, 32, 32, {32}, 3);
  Crafted outputs(graph, 0);
  const int classes = graph.boxes->levels[0].classes;
  outputs.at(classes, 0, 0, 0) = -1, outputs.at(classes, 0, 0, 1) = 3, outputs.at(classes, 0, 0, 2) = 1;
  BoxOptions options{.score_threshold = 0.3, .iou_threshold = 0.5};
  const auto best = decode_boxes(graph, outputs.bytes(), 0, {32, 32}, options);
  ASSERT_EQ(best.size(), 1u);
  EXPECT_EQ(best[0].class_index, 1);
  options.every_class = true;  // 0.5 * sigmoid(-1) is below 0.3
  const auto every = decode_boxes(graph, outputs.bytes(), 0, {32, 32}, options);
  ASSERT_EQ(every.size(), 2u);
  EXPECT_EQ(every[1].class_index, 2);
  EXPECT_NEAR(every[1].score, 0.5 * sigmoid_of(1), 1e-6);
  options.max_boxes = 1;
  EXPECT_EQ(decode_boxes(graph, outputs.bytes(), 0, {32, 32}, options).size(), 1u);
}

TEST(Suppress, LeavesOutWhatOverlapsABetterBoxOfItsClass) {
  const Box a{0, 0, 10, 10}, near{1, 0, 10, 10}, far{0, 6, 10, 10};  // IoU with a: 90 / 110, 40 / 160
  const std::vector<Detection> all = {{a, 0, 0.5}, {near, 0, 0.9}, {near, 1, 0.4}, {far, 0, 0.3}, {a, 0, 0.9}};
  const auto kept = suppress(all, 0.5);
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept[0].box, near);  // the first of equal scores
  EXPECT_EQ(kept[1].class_index, 1);
  EXPECT_EQ(kept[2].box, far);
  EXPECT_EQ(suppress(all, 0.1).size(), 2u);
}

/// Paints a rectangle into an image, fits the image to an input, and finds the rectangle where placement() says.
TEST(Placement, IsWhereEvaluationPixelsPutsTheImage) {
  const Rectangle rectangle{30, 50, 40, 60};
  for (const Fit fit : {Fit::crop, Fit::stretch, Fit::letterbox, Fit::letterbox_corner})
    for (const ImageSize size : {ImageSize{120, 200}, ImageSize{201, 131}}) {
      Image image{size.height, size.width, 1, std::vector<uint8_t>(static_cast<size_t>(size.height) * size.width)};
      for (int y = rectangle.top; y < rectangle.top + rectangle.height; ++y)
        for (int x = rectangle.left; x < rectangle.left + rectangle.width; ++x)
          image.pixels[static_cast<size_t>(y) * size.width + x] = 255;
      const Transform transform{
          .channels = 1, .height = 96, .width = 96, .fit = fit, .resize = fit == Fit::crop ? 110 : 0};
      const Image input = evaluation_image(image, transform);
      int left = 96, top = 96, right = 0, bottom = 0;
      for (int y = 0; y < 96; ++y)
        for (int x = 0; x < 96; ++x) {
          if (input.pixels[static_cast<size_t>(y) * 96 + x] < 128) continue;
          left = std::min(left, x), right = std::max(right, x + 1);
          top = std::min(top, y), bottom = std::max(bottom, y + 1);
        }
      const Placement at = placement(size, transform);
      const auto x_of = [&](int x) { return at.left + at.scale_x * x; };
      const auto y_of = [&](int y) { return at.top + at.scale_y * y; };
      constexpr double kPixels = 0.75;  // a pixel is in or out as a whole
      EXPECT_NEAR(left, std::max(x_of(rectangle.left), 0.0), kPixels) << name_in(kFits, fit);
      EXPECT_NEAR(right, std::min(x_of(rectangle.left + rectangle.width), 96.0), kPixels) << name_in(kFits, fit);
      EXPECT_NEAR(top, std::max(y_of(rectangle.top), 0.0), kPixels) << name_in(kFits, fit);
      EXPECT_NEAR(bottom, std::min(y_of(rectangle.top + rectangle.height), 96.0), kPixels) << name_in(kFits, fit);
    }
}

/// The middle of a 64 x 128 image in a 32 x 32 input is a quarter of its size, 8 pixels down.
TEST(DecodeBoxes, AreInTheImagesOwnPixels) {
  Int8Graph graph = detector(BoxHeadKind::yolox, 32, 32, {32}, 1);
  Crafted outputs(graph, 0);
  const float box[] = {0.5f, 0.5f, -0.69314718f, -1.38629436f};  // x 8..24, y 12..20 of the input
  for (int i = 0; i < 4; ++i) outputs.at(graph.boxes->levels[0].boxes, 0, 0, i) = box[i];
  const BoxOptions options{.score_threshold = 0.1, .iou_threshold = 0.5};
  graph.preprocessing.fit = Fit::letterbox;
  expect_box(decode_boxes(graph, outputs.bytes(), 0, {64, 128}, options).at(0), {32, 16, 64, 32}, 0, 0.25);
  expect_box(decode_boxes(graph, outputs.bytes(), 0, {128, 64}, options).at(0), {0, 48, 64, 32}, 0, 0.25);
  graph.preprocessing.fit = Fit::letterbox_corner;  // of which rows 16 on are grey
  expect_box(decode_boxes(graph, outputs.bytes(), 0, {64, 128}, options).at(0), {32, 48, 64, 16}, 0, 0.25);
  outputs.at(graph.boxes->levels[0].boxes, 0, 0, 1) = 0.9f;  // wholly in the grey
  EXPECT_TRUE(decode_boxes(graph, outputs.bytes(), 0, {64, 128}, options).empty());
}

TEST(DrawBoxes, FramesAndNamesAreInTheClasssColour) {
  const Image grey{100, 120, 1, std::vector<uint8_t>(100 * 120, 50)};
  const std::vector<Detection> boxes = {{{10, 30, 60, 50}, 0, 0.5}, {{20, 40, 60, 50}, 7, 0.8}};
  const Image drawn = draw_boxes(grey, boxes, std::vector<std::string>{"cat"});
  ASSERT_EQ(drawn.channels, 3);
  const auto pixel = [&](int x, int y) {
    const uint8_t* p = &drawn.pixels[static_cast<size_t>(y * 120 + x) * 3];
    return std::array<uint8_t, 3>{p[0], p[1], p[2]};
  };
  const std::array<uint8_t, 3> ground{50, 50, 50};
  EXPECT_NE(pixel(10, 60), ground);
  EXPECT_EQ(pixel(10, 60), pixel(10, 79));
  EXPECT_NE(pixel(10, 60), pixel(79, 60));  // class 7
  EXPECT_EQ(pixel(15, 60), ground);
  EXPECT_EQ(pixel(9, 60), ground);
  EXPECT_EQ(pixel(10, 22), pixel(10, 60));  // the ground of the name, above the box
  EXPECT_EQ(pixel(10, 20), ground);
  EXPECT_EQ(letter('a'), letter('A'));
  EXPECT_NE(letter('b'), letter('A'));
}

/// Logits of 8 x 16 places say class 1 for columns 4 to 7 and class 2 below row 4, as high; class 0 elsewhere.
TEST(DecodeMask, FindsThePlaceOfEachPixel) {
  Int8Graph graph = test::brightness_segmenter();
  require_masks(graph);
  graph.nodes[1].shape = {3, 8, 16};
  std::vector<float> logits(8 * 16 * 3);
  for (int y = 0; y < 8; ++y)
    for (int x = 0; x < 16; ++x) {
      float* pixel = &logits[static_cast<size_t>(y * 16 + x) * 3];
      pixel[1] = x >= 4 && x < 8 ? 2 : -1;
      pixel[2] = y >= 4 ? 2 : -1;
    }
  const auto at = [](const Image& mask, int x, int y) {
    return int{mask.pixels[static_cast<size_t>(y) * mask.width + static_cast<size_t>(x)]};
  };
  // Twice as large as it fits: a place is 4 x 4 of its pixels; the input's right half is grey.
  const Image corner = decode_mask(graph, logits.data(), {32, 32});
  EXPECT_EQ(at(corner, 15, 0), 0);
  EXPECT_EQ(at(corner, 16, 15), 1);
  EXPECT_EQ(at(corner, 31, 31), 1);  // of equal logits the first
  EXPECT_EQ(at(corner, 15, 16), 2);
  EXPECT_EQ(at(corner, 15, 15), 0);
  const Image odd = decode_mask(graph, logits.data(), {19, 19});  // the centre of column 9 is the first beyond place 4
  EXPECT_EQ(at(odd, 8, 0), 0);
  EXPECT_EQ(at(odd, 9, 0), 1);
  graph.preprocessing.fit = Fit::crop;  // a border of 2 rows and 4 columns is not seen
  const Image cropped = decode_mask(graph, logits.data(), {20, 40});
  EXPECT_EQ(at(cropped, 3, 10), kUnlabelled);
  EXPECT_EQ(at(cropped, 10, 1), kUnlabelled);
  EXPECT_EQ(at(cropped, 10, 18), kUnlabelled);
  EXPECT_EQ(at(cropped, 36, 10), kUnlabelled);
  EXPECT_EQ(at(cropped, 11, 2), 0);
  EXPECT_EQ(at(cropped, 12, 2), 1);
  EXPECT_EQ(at(cropped, 19, 9), 1);
  EXPECT_EQ(at(cropped, 20, 9), 0);
  EXPECT_EQ(at(cropped, 20, 10), 2);
  graph.nodes[1].shape.c = 256;  // a class would be kUnlabelled
  EXPECT_NE(error_of([&] { require_masks(graph); }).find("255 classes at most"), std::string::npos);
  EXPECT_NE(error_of([] { require_masks(test::one_box_detector()); }).find("no classes of pixels"), std::string::npos);
}

TEST(DrawClasses, ColoursPixelsByTheirClass) {
  const Image grey{100, 200, 1, std::vector<uint8_t>(100 * 200, 100)};
  Image mask{100, 200, 1, std::vector<uint8_t>(100 * 200, kUnlabelled)};
  for (int y = 0; y < 100; ++y)
    for (int x = 0; x < 120; ++x) mask.pixels[static_cast<size_t>(y) * 200 + x] = x < 40 ? 0 : y < 90 ? 1 : 5;
  const Image drawn = draw_classes(grey, mask, std::vector<std::string>{"sky", "road"});
  ASSERT_EQ(drawn.channels, 3);
  const auto pixel = [&](int x, int y) {
    const uint8_t* p = &drawn.pixels[static_cast<size_t>(y * 200 + x) * 3];
    return std::array<uint8_t, 3>{p[0], p[1], p[2]};
  };
  EXPECT_EQ(pixel(0, 99), pixel(39, 50));
  EXPECT_NE(pixel(39, 50), pixel(40, 50));
  EXPECT_EQ(pixel(40, 89), pixel(119, 89));
  EXPECT_NE(pixel(40, 89), pixel(40, 90));
  EXPECT_EQ(pixel(120, 50), (std::array<uint8_t, 3>{100, 100, 100}));
  EXPECT_NEAR(pixel(0, 0)[0], 2 * pixel(119, 50)[0] - 100, 1)
      << "most pixels are road: its name is first, on its colour";
}

}  // namespace
}  // namespace octet
