// SPDX-License-Identifier: Apache-2.0
// Images with boxes: the files that are found, and boxes that move as the pixels of training images do.
#include "src/data/box_annotations.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "tests/data/images.h"
#include "tests/data/painted_boxes.h"
#include "tests/error_of.h"

namespace octet {
namespace {

using testing::data_refusal;
using testing::expect_part;
using testing::png_bytes;
using testing::TemporaryFolder;

constexpr int kHeight = 60, kWidth = 90;
/// Painted in red, green and blue; the last one reaches over the border.
const std::array<Box, 3> kBoxes = {{{8, 10, 30, 20}, {50, 5, 20, 40}, {40, 48, 25, 20}}};

Image painted() {
  Image image{kHeight, kWidth, 3, std::vector<uint8_t>(static_cast<size_t>(kHeight) * kWidth * 3, 30)};
  for (int c = 0; c < 3; ++c)
    for (int y = 0; y < kHeight; ++y)
      for (int x = 0; x < kWidth; ++x) {
        const Box& box = kBoxes[c];
        if (x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height)
          image.pixels[static_cast<size_t>(3 * (y * kWidth + x) + c)] = 230;
      }
  return image;
}

std::string annotation(int category, const Box& box, bool crowd = false) {
  return fmt::format(R"({{"image_id": 1, "category_id": {}, "bbox": [{}, {}, {}, {}], "iscrowd": {}}})", category,
                     box.x, box.y, box.width, box.height, crowd ? 1 : 0);
}

class BoxFolderTest : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& image, const std::string& size = "") {
    folder_.write(file, fmt::format(R"({{"images": [{{"id": 1, "file_name": "{}"{}}}], "categories": [
      {{"id": 1, "name": "red"}}, {{"id": 5, "name": "green"}}, {{"id": 7, "name": "blue"}}],
      "annotations": [{}, {}, {}, {}]}})",
                                    image, size, annotation(1, kBoxes[0]), annotation(5, kBoxes[1]),
                                    annotation(7, kBoxes[2]), annotation(1, {0, 0, 80, 55}, true)));
  }
  DatasetSpec spec(const std::string& split = "train") const {
    return {.format = "coco", .path = folder_.path(), .split = split, .labels = Labels::boxes};
  }
  TemporaryFolder folder_;
};

TEST_F(BoxFolderTest, FindsEachLayout) {
  const std::string png = png_bytes(painted());
  const std::array<std::pair<const char*, const char*>, 4> layouts = {
      {{"a.json", "images/a/p.png"},
       {"annotations/b.json", "b/p.png"},
       {"annotations/instances_c2017.json", "c2017/p.png"},
       {"d/_annotations.coco.json", "d/p.png"}}};
  const char* names[] = {"a", "b", "c2017", "d"};
  for (size_t i = 0; i < layouts.size(); ++i) {
    write(layouts[i].first, "p.png");
    folder_.write(layouts[i].second, png);
    const auto dataset = open_dataset(spec(names[i]));
    ASSERT_EQ(dataset->size(), 1u) << names[i];
    EXPECT_EQ(dataset->describe(0), folder_.path(layouts[i].second));
    EXPECT_EQ(dataset->read(0).pixels, painted().pixels);
    EXPECT_EQ(dataset->class_names(), (std::vector<std::string>{"red", "green", "blue"}));
    ASSERT_EQ(dataset->boxes(0).size(), 4u);
    EXPECT_EQ(dataset->boxes(0)[1].box, kBoxes[1]);
    EXPECT_EQ(dataset->boxes(0)[1].class_index, 1);
    EXPECT_TRUE(dataset->boxes(0)[3].crowd);
  }
  const TemporaryFolder other;
  for (const std::string top : {"", "./", "set/", "a/b/"}) {
    other.write("boxes.tar", testing::tar_of(folder_, top));
    for (size_t i = 0; i < layouts.size(); ++i) {
      DatasetSpec archived = spec(names[i]);
      archived.path = other.path("boxes.tar");
      const auto dataset = open_dataset(archived);
      ASSERT_EQ(dataset->size(), 1u) << names[i] << " below " << top;
      EXPECT_EQ(dataset->describe(0),
                other.path("boxes.tar/" + (top == "./" ? "" : top) + std::string(layouts[i].second)));
      EXPECT_EQ(dataset->read(0).pixels, painted().pixels);
      EXPECT_EQ(dataset->header(0)->width, kWidth);
      EXPECT_EQ(dataset->boxes(0).at(1).box, kBoxes[1]);
    }
    DatasetSpec absent = spec("e");
    absent.path = other.path("boxes.tar");
    expect_part(data_refusal([&] { open_dataset(absent); }), "boxes.tar/annotations/e.json, ");
  }
  expect_part(data_refusal([&] { open_dataset(spec("e")); }), "/e/_annotations.coco.json exists");
}

TEST_F(BoxFolderTest, OtherSplitsHaveTheClassesOfTraining) {
  write("train.json", "p.png");
  folder_.write("p.png", png_bytes(painted()));
  DatasetSpec other = spec();
  other.class_names = {"blue", "black", "green", "red"};
  const auto dataset = open_dataset(other);
  EXPECT_EQ(dataset->boxes(0)[0].class_index, 3);
  EXPECT_EQ(dataset->boxes(0)[2].class_index, 0);
  other.class_names = {"blue", "green"};
  expect_part(data_refusal([&] { open_dataset(other); }),
              "p.png: a box of category 'red', which is none of the 2 classes of data.class_names or, without it, the "
              "training set (blue ...)");
}

TEST_F(BoxFolderTest, RefusesWhatIsNotThere) {
  write("train.json", "missing.png");
  expect_part(data_refusal([&] { open_dataset(spec()); }), "train.json: 1 of its 1 images are not in ");
  write("train.json", "p.png", R"(, "height": 60, "width": 91)");
  folder_.write("p.png", png_bytes(painted()));
  expect_part(data_refusal([&] { open_dataset(spec())->read(0); }), "p.png: 90x60 pixels, the annotations say 91x60");
  DatasetSpec images = spec();
  images.labels = Labels::image;
  expect_part(error_of([&] { open_dataset(images); }), "boxes come with coco, voc and yolo, and with them alone");
}

/// What is refused by default may be left out; it is counted, with the place of the first.
TEST_F(BoxFolderTest, LeavesOutWhatIsWrongWhereTheRecipeSaysSo) {
  folder_.write("p.png", png_bytes(painted()));
  folder_.write("train.json", R"({"images": [{"id": 1, "file_name": "p.png"}, {"id": 2, "file_name": "lost.png"}],
      "categories": [{"id": 1, "name": "red"}, {"id": 5, "name": "green"}], "annotations": [)" +
                                  annotation(1, kBoxes[0]) + ", " + annotation(9, kBoxes[1]) + ", " +
                                  annotation(5, kBoxes[1]) + ", " + annotation(9, kBoxes[2]) + "]}");
  DatasetSpec lenient = spec();
  expect_part(data_refusal([&] { open_dataset(lenient); }),
              "train.json: annotations[1]: category_id 9 is none of 'categories'; a recipe's data.leave_out_faults: "
              "true leaves "
              "such out");
  lenient.leave_out_faults = true;
  lenient.class_names = {"green"};
  const auto dataset = open_dataset(lenient);
  ASSERT_EQ(dataset->size(), 1u);
  ASSERT_EQ(dataset->boxes(0).size(), 1u);
  EXPECT_EQ(dataset->boxes(0)[0].box, kBoxes[1]);
  EXPECT_EQ(dataset->boxes(0)[0].class_index, 0);
  const std::vector<std::string> notes = dataset->notes();
  ASSERT_EQ(notes.size(), 3u);
  expect_part(notes[0], "2 boxes left out, the first: ");
  expect_part(notes[0], "annotations[1]: category_id 9");
  expect_part(notes[1], "1 of its 2 images are not in ");
  expect_part(notes[1], "lost.png; left out");
  expect_part(notes[2], "p.png: a box of category 'red', which is none of the 1 classes");
  std::filesystem::remove(folder_.path("p.png"));
  expect_part(data_refusal([&] { open_dataset(lenient); }), "2 of its 2 images are not in ");
}

/// Returns the box of the pixels in which that channel stands out: a pixel of half of the colour is half inside.
Box found(const uint8_t* pixels, const Transform& t, int channel) {
  int left = t.width, right = -1, top = t.height, bottom = -1;
  for (int y = 0; y < t.height; ++y)
    for (int x = 0; x < t.width; ++x) {
      const uint8_t* p = pixels + 3 * (y * t.width + x);
      if (p[channel] < 130 || p[(channel + 1) % 3] > 80 || p[(channel + 2) % 3] > 80) continue;
      left = std::min(left, x), right = std::max(right, x + 1);
      top = std::min(top, y), bottom = std::max(bottom, y + 1);
    }
  if (right < 0) return {};
  return {1.0 * left, 1.0 * top, 1.0 * (right - left), 1.0 * (bottom - top)};
}

TEST_F(BoxFolderTest, BoxesMoveAsPixelsMove) {
  write("train.json", "p.png");
  folder_.write("p.png", png_bytes(painted()));
  const auto dataset = open_dataset(spec());
  long flipped = 0, cut = 0, dropped = 0, seen = 0;
  for (const Fit fit : {Fit::letterbox_corner, Fit::letterbox, Fit::stretch})
    for (const ChannelOrder order : {ChannelOrder::rgb, ChannelOrder::bgr}) {
      Transform t{.height = 96, .width = 80, .fit = fit, .flip = true, .scale = 0.5, .translate = 0.3, .order = order};
      for (int epoch = 0; epoch < 60; ++epoch) {
        Loader loader(*dataset, {0}, t, {.batch_size = 1, .train = true, .seed = 3, .epoch = epoch, .workers = 0});
        Batch batch;
        ASSERT_TRUE(loader.next(batch));
        ASSERT_EQ(batch.labels.size(), 3u * kBoxValues);  // the crowd has no place
        std::array<Box, 3> labels{};
        for (const auto& [cls, box] : testing::labels_of(batch, 0)) labels[static_cast<size_t>(cls)] = box;
        if (labels[0].area() > 0 && labels[1].area() > 0) flipped += labels[0].x > labels[1].x;
        for (int c = 0; c < 3; ++c) {
          const Box there = found(batch.images.data(), t, order == ChannelOrder::rgb ? c : 2 - c);
          if (labels[c].area() == 0) {
            EXPECT_LT(there.area(), 0.12 * kBoxes[c].area() * 2.25 * 2) << "a box was dropped that is there";
            ++dropped;
            continue;
          }
          ++seen;
          cut += there.x == 0 || there.y == 0;
          EXPECT_NEAR(labels[c].x, there.x, 1.01) << epoch << " colour " << c;
          EXPECT_NEAR(labels[c].y, there.y, 1.01) << epoch << " colour " << c;
          EXPECT_NEAR(labels[c].x + labels[c].width, there.x + there.width, 1.01) << epoch << " colour " << c;
          EXPECT_NEAR(labels[c].y + labels[c].height, there.y + there.height, 1.01) << epoch << " colour " << c;
        }
      }
    }
  EXPECT_GT(flipped, 60);
  EXPECT_GT(cut, 30);
  EXPECT_GT(dropped, 3);
  EXPECT_GT(seen, 700);
}

}  // namespace
}  // namespace octet
