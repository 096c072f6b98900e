// SPDX-License-Identifier: Apache-2.0
// average_precision() against pycocotools (tests/witness/coco_ap.py) on random sets with crowds, equal scores and
// overlaps, images and classes without labels or detections, and more detections than count.
#include "src/eval/metrics.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "tests/engine/network_builder.h"
#include "tests/source_dir.h"
#include "tests/witness/python.h"

namespace octet {
namespace {

using nlohmann::json;

struct BoxSet {
  int classes = 0;
  std::vector<ImageBoxes> images;
};

/// A box on a grid, so that overlaps are equal now and then, of any of the three sizes.
Box random_box(test::Random& random) {
  const int cell = random.pick({1, 8, 40});
  return {1.0 * cell * random.between(0, 6), 1.0 * cell * random.between(0, 6), 1.0 * cell * random.between(1, 5),
          1.0 * cell * random.between(1, 5)};
}

BoxSet random_set(test::Random& random) {
  BoxSet set{random.between(1, 5), {}};
  const int labelled = random.between(1, set.classes);  // the others have no labels
  const bool ties = random.chance(50);
  const int most = random.chance(20) ? 150 : 12;
  for (int i = random.between(1, 12); i > 0; --i) {
    ImageBoxes image;
    for (int n = random.chance(20) ? 0 : random.between(0, 8); n > 0; --n) {
      const Box box = random_box(random);
      const double area = random.chance(50) ? box.area() : box.area() * random.uniform(0.2, 1);
      image.labels.push_back({box, random.between(0, labelled - 1), area, random.chance(15)});
    }
    for (int n = random.chance(20) ? 0 : random.between(0, most); n > 0; --n) {
      Box box = random_box(random);
      if (!image.labels.empty() && random.chance(60)) {
        box = image.labels[random.between(0, static_cast<int>(image.labels.size()) - 1)].box;
        if (random.chance(60)) box.x += random.uniform(-0.2, 0.2) * box.width, box.height *= random.uniform(0.8, 1.3);
      }
      const double score = ties ? 0.1 * random.between(1, 9) : random.uniform(0.01, 1);
      image.detections.push_back({box, random.between(0, set.classes - 1), score});
    }
    set.images.push_back(std::move(image));
  }
  return set;
}

json for_pycocotools(const BoxSet& set) {
  json images = json::array(), categories = json::array(), annotations = json::array(), detections = json::array();
  for (int c = 0; c < set.classes; ++c) categories.push_back({{"id", c + 1}});
  for (size_t i = 0; i < set.images.size(); ++i) {
    images.push_back({{"id", i + 1}});
    const auto entry = [&](const Box& b, int class_index) {
      return json{{"image_id", i + 1}, {"category_id", class_index + 1}, {"bbox", {b.x, b.y, b.width, b.height}}};
    };
    for (const BoxLabel& label : set.images[i].labels) {
      annotations.push_back(entry(label.box, label.class_index));
      annotations.back().update({{"id", annotations.size()}, {"area", label.area}, {"iscrowd", label.crowd ? 1 : 0}});
    }
    for (const Detection& d : set.images[i].detections) {
      detections.push_back(entry(d.box, d.class_index));
      detections.back()["score"] = d.score;
    }
  }
  return {{"truth", {{"images", images}, {"categories", categories}, {"annotations", annotations}}},
          {"detections", detections}};
}

std::vector<double> twelve(const AveragePrecision& ap) {
  std::vector<double> all = {ap.ap, ap.ap50, ap.ap75};
  for (const auto& three : {ap.ap_of_size, ap.recall_of_best, ap.recall_of_size})
    all.insert(all.end(), three.begin(), three.end());
  return all;
}

double or_minus_one(double value) { return std::isnan(value) ? -1 : value; }

TEST(AveragePrecision, IsThatOfPycocotools) {
  if (!test::python_has("pycocotools")) GTEST_SKIP() << test::python() << " has no pycocotools";
  constexpr int kSets = 50;
  constexpr double kDifference = 1e-9;
  test::Random random(3);
  std::vector<BoxSet> sets;
  json document = json::array();
  for (int s = 0; s < kSets; ++s) {
    sets.push_back(random_set(random));
    document.push_back(for_pycocotools(sets.back()));
  }
  const std::string file = testing::TempDir() + "octet_ap_" + std::to_string(::getpid());
  write_file_atomically(file, document.dump());
  const std::string command = test::python() + " " + source_dir() + "/tests/witness/coco_ap.py " + file;
  ASSERT_EQ(std::system((command + " > " + file + ".answer").c_str()), 0);
  const json answer = json::parse(read_file(file + ".answer"));
  for (const char* end : {"", ".answer"}) std::filesystem::remove(file + end);

  int different = 0, small = 0;  // sets whose numbers say something
  for (int s = 0; s < kSets; ++s) {
    const AveragePrecision ap = average_precision(sets[s].images, sets[s].classes);
    const std::vector<double> own = twelve(ap);
    for (size_t i = 0; i < own.size(); ++i)
      EXPECT_NEAR(or_minus_one(own[i]), answer[s]["stats"][i].get<double>(), kDifference) << "set " << s << ", " << i;
    for (int c = 0; c < sets[s].classes; ++c)
      EXPECT_NEAR(or_minus_one(ap.of_class[c].ap), answer[s]["classes"][c].get<double>(), kDifference)
          << "set " << s << ", class " << c;
    different += ap.ap > 0.01 && ap.ap < 0.99 ? 1 : 0;
    small += ap.ap_of_size[0] > 0 ? 1 : 0;
  }
  EXPECT_GT(different, kSets / 2);
  EXPECT_GT(small, kSets / 4);
}

TEST(AveragePrecision, OfFiveThousandImagesTakesSeconds) {
  constexpr int kImages = 5000, kDetections = 100, kClasses = 80;
  test::Random random(4);
  std::vector<ImageBoxes> images(kImages);
  for (ImageBoxes& image : images) {
    for (int n = 0; n < 7; ++n) {
      const Box box = random_box(random);
      image.labels.push_back({box, random.between(0, kClasses - 1), box.area(), false});
    }
    for (int n = 0; n < kDetections; ++n)
      image.detections.push_back({random_box(random), random.between(0, kClasses - 1), random.uniform(0, 1)});
  }
  const auto start = std::chrono::steady_clock::now();
  const AveragePrecision ap = average_precision(images, kClasses);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GT(ap.ap50, 0);
  RecordProperty("seconds", std::to_string(seconds));
#ifdef NDEBUG
  EXPECT_LT(seconds, 5);
#endif
}

}  // namespace
}  // namespace octet
