// SPDX-License-Identifier: Apache-2.0
// Detectors, as a user runs them: boxes as text, JSON and images; AP against annotations.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/files.h"
#include "src/data/dataset.h"
#include "src/net/checkpoint.h"
#include "tests/data/images.h"
#include "tests/detect/detector.h"
#include "tests/tools/program.h"

namespace octet::test {
namespace {

using nlohmann::json;

class Boxes : public ToolTest {
 protected:
  void SetUp() override {
    write_checkpoint(path("net.safetensors"), one_box_detector());
    std::filesystem::create_directory(path("images"));
    write("images/wide.png", testing::png_bytes(testing::noise(32, 64, 3, 1)));    // dog at 16, 8, 32 x 16
    write("images/square.png", testing::png_bytes(testing::noise(32, 32, 3, 2)));  // dog at 8, 4, 16 x 8
  }

  Answer evaluate(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"evaluate", path("net.safetensors"), "--images", path("images"),
                                      "--boxes",  path("a.json"),          "--device", "cpu"};
    words.insert(words.end(), more.begin(), more.end());
    return octet(words);
  }

  /// Annotations of both images, in which `dog` is the name of the class that is found.
  void annotate(const std::string& dog, const json& more_images = json::array()) const {
    json images = {{{"id", 5}, {"file_name", "wide.png"}, {"height", 32}, {"width", 64}},
                   {{"id", 6}, {"file_name", "square.png"}, {"height", 32}, {"width", 32}}};
    images.insert(images.end(), more_images.begin(), more_images.end());
    const json annotations = {{{"image_id", 5}, {"category_id", 17}, {"bbox", {16, 8, 32, 16}}},  // exact
                              {{"image_id", 6},
                               {"category_id", 17},
                               {"bbox", {8, 4, 16, 10.2}}}};  // IoU 80 / 102 = 0.784: 6 of 10 thresholds
    write("a.json", json{{"images", images},
                         {"annotations", annotations},
                         {"categories", {{{"id", 17}, {"name", dog}}, {{"id", 18}, {"name", "unused"}}}}}
                        .dump());
  }
};

TEST_F(Boxes, RunPrintsAndDrawsThem) {
  const Answer text = octet({"run", path("net.safetensors"), path("images/wide.png")});
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part : {"dog", "86.5 %", "16.0", "8.0", "32.0"}) expect_part(text.out, part);
  const Answer answer = octet({"run", path("net.safetensors"), path("images/wide.png"), path("images/square.png"),
                               "--json", "--out", path("images")});
  EXPECT_EQ(answer.code, 0) << answer.err;
  const json found = json::parse(answer.out);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].at("width"), 64);
  EXPECT_EQ(found[1].at("boxes"), json({{{"class", 1},
                                         {"name", "dog"},
                                         {"score", 0.865},
                                         {"x", 8.0},
                                         {"y", 4.0},
                                         {"width", 16.0},
                                         {"height", 8.0}}}));
  const std::string drawn = read_file(path("images/wide_boxes.png"));
  const Image image = decode_image(drawn, 3, "wide_boxes.png");
  EXPECT_EQ((ImageSize{image.height, image.width}), (ImageSize{32, 64}));
  const auto pixel = [&](int x, int y) {
    return std::vector<int>(&image.pixels[(y * 64 + x) * 3], &image.pixels[(y * 64 + x) * 3 + 3]);
  };
  EXPECT_EQ(pixel(16, 20), pixel(47, 20));  // both sides of the frame
  EXPECT_EQ(
      json::parse(
          octet({"run", path("net.safetensors"), path("images/wide.png"), "--json", "--score", "0.9"}).out)[0]["boxes"],
      json::array());
  expect_refusal(octet({"run", path("net.safetensors"), path("images/wide.png"), path("images/square.png"), "--out",
                        path("a.png")}),
                 2, {"--out", "a folder that exists"});
  expect_refusal(octet({"run", path("net.safetensors"), path("images/wide.png"), "--out", path("images/wide.png")}), 2,
                 {"would replace the image itself"});
  expect_refusal(octet({"run", random_checkpoint(), path("images/wide.png"), "--out", path("a.png")}), 2,
                 {"does not say how its outputs become boxes"});
}

TEST_F(Boxes, EvaluateMeasuresTheirPrecision) {
  annotate("dog");
  const Answer answer = evaluate({"--json", "--detections", path("found.json")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const json ap = json::parse(answer.out);
  // At six thresholds both are right, at four one of two: equal scores, and the image of the smaller id comes first.
  EXPECT_NEAR(ap.at("ap").get<double>(), (6 * 1 + 4 * 51.0 / 101) / 10, 1e-9);
  EXPECT_EQ(ap.at("ap50"), 1.0);
  EXPECT_EQ(ap.at("ap_small"), ap.at("ap"));
  EXPECT_TRUE(ap.at("ap_large").is_null());
  EXPECT_EQ(ap.at("images"), 2);
  EXPECT_EQ(ap.at("classes")[1].at("boxes"), 2);
  expect_part(answer.err, "no category for 1 of the network's 2 classes");
  const json found = json::parse(read_file(path("found.json")));
  const json& first = found.at(0);  // of every class, also of low scores
  EXPECT_EQ(first.at("image_id"), 5);
  EXPECT_EQ(first.at("category_id"), 17);
  EXPECT_NEAR(first.at("bbox")[2].get<double>(), 32, 1e-4);
  expect_part(evaluate({}).out, "dog");
}

TEST_F(Boxes, AnnotationsThatDoNotFitAreRefused) {
  annotate("hound");
  expect_refusal(evaluate({}), 2, {"category 'hound' (2 boxes) is none of the network's classes", "--classes-file"});
  write("names", "cat\nhound\n");
  EXPECT_EQ(evaluate({"--classes-file", path("names")}).code, 0);
  annotate("dog", {{{"id", 1}, {"file_name", "absent.png"}}});
  expect_refusal(evaluate({}), 3, {"1 of the images are not in", "'absent.png' (id 1)", "--skip-missing"});
  EXPECT_EQ(json::parse(evaluate({"--skip-missing", "--json"}).out).at("missing_images"), 1);
  annotate("dog", {{{"id", 7}, {"file_name", "wide.png"}, {"height", 64}, {"width", 32}}});
  expect_refusal(evaluate({}), 3, {"wide.png: 64x32 pixels, the annotations say 32x64"});
  expect_refusal(octet({"evaluate", path("net.safetensors"), "--images", path("images"), "--skip-missing"}), 2,
                 {"belong to --boxes"});
}

}  // namespace
}  // namespace octet::test
