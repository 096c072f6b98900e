// SPDX-License-Identifier: Apache-2.0
// Several processes that share an evaluation, here threads, give what one gives, to the last bit.
#include "src/eval/evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <sstream>
#include <string>

#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/eval/compare.h"
#include "tests/eval/fakes.h"
#include "tests/eval/shared.h"

namespace octet {
namespace {

using testing::fake_graph;
using testing::FakeDataset;
using testing::FakeProgram;
using testing::FunctionProgram;

constexpr int kClassCount = 5, kBatchSize = 4;

class SharingTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_verbosity(Verbosity::quiet); }

  /// What each of so many processes returns.
  template <class Result>
  std::vector<Result> each(const std::function<Result(const EvaluationSet&)>& work, const EvaluationSet& whole) {
    return testing::each_process(GetParam(), work, whole);
  }

  const FakeDataset dataset_{27, kClassCount};  // seven batches, the last of three images
};

/// Logits of which no two images' are alike, so that sums of losses depend on their order.
void uneven(const uint8_t* images, int batch, float* logits) {
  for (int i = 0; i < batch; ++i)
    for (int k = 0; k < kClassCount; ++k)
      logits[i * kClassCount + k] = std::sin(static_cast<float>(images[4 * i] * 7 + k));
}

TEST_P(SharingTest, EvaluationsAreThoseOfOneProcess) {
  const EvaluateOptions options{.classes = kClassCount, .batch_size = kBatchSize, .latency_images = 3};
  const auto work = [&](const EvaluationSet& set) {
    FunctionProgram program(uneven);
    return evaluate("shared", program, set, options);
  };
  const EvaluationSet whole = testing::all_of(dataset_);
  const Evaluation alone = work(whole);
  const std::vector<Evaluation> shared = each<Evaluation>(work, whole);
  for (const Evaluation& e : shared) {
    testing::expect_equal(e, alone);
    EXPECT_EQ(e.latency_runs, &e == &shared[0] ? 3 : 0);
  }
}

/// What each says at the end is the whole's, in an evaluation and in a comparison.
TEST_P(SharingTest, LinesOfProgressSayWhatTheWholeIs) {
  const EvaluationSet whole = testing::all_of(dataset_);
  const Int8Graph graph = fake_graph(kClassCount);
  const auto work = [&](const EvaluationSet& set) {
    FunctionProgram program(uneven);
    FakeProgram first{graph}, second{graph};
    second.change_by_image = [](int node, int, uint8_t* codes) {
      if (node == 1) codes[5] = static_cast<uint8_t>(codes[5] + 1);
    };
    const Evaluation e =
        evaluate("shared", program, set, {.classes = kClassCount, .batch_size = kBatchSize, .latency_images = 0});
    compare(graph, {{"qat_graph", &first}, {"cpu", &second}}, set, kBatchSize);
    return e;
  };
  set_verbosity(Verbosity::normal);
  ::testing::internal::CaptureStderr();
  const Evaluation e = each<Evaluation>(work, whole).front();
  const std::string said = ::testing::internal::GetCapturedStderr();
  const auto ends = [&](const std::string& begin, const std::string& end) {
    int count = 0;
    std::istringstream lines(said);
    for (std::string line; std::getline(lines, line);) count += line.starts_with(begin) && line.ends_with(end) ? 1 : 0;
    return count;
  };
  EXPECT_EQ(ends("evaluate shared: 27 images in ", "top-1 " + percent(e.top1)), GetParam()) << said;
  EXPECT_EQ(ends("compare: 27 images in ", "27 codes differ"), GetParam()) << said;
}

TEST_P(SharingTest, EveryImageIsSeenOnce) {
  std::mutex mutex;
  std::vector<int> seen;
  const auto work = [&](const EvaluationSet& set) {
    FunctionProgram program([&](const uint8_t* images, int batch, float* logits) {
      uneven(images, batch, logits);
      const std::lock_guard<std::mutex> lock(mutex);
      for (int i = 0; i < batch; ++i) seen.push_back(images[4 * i] / 4);
    });
    return evaluate("shared", program, set, {.classes = kClassCount, .batch_size = kBatchSize, .latency_images = 0});
  };
  each<Evaluation>(work, testing::all_of(dataset_));
  std::sort(seen.begin(), seen.end());
  std::vector<int> once(27);
  for (int i = 0; i < 27; ++i) once[static_cast<size_t>(i)] = i;
  EXPECT_EQ(seen, once);
}

TEST_P(SharingTest, ComparisonsAreThoseOfOneProcess) {
  const Int8Graph graph = fake_graph(kClassCount);
  const auto work = [&](const EvaluationSet& set) {
    FakeProgram first{graph}, second{graph}, slow{graph};
    // An image is known by its first code, whichever process sees it.
    second.change_by_image = [](int node, int image, uint8_t* codes) {
      if (node == 1 && image % 9 == 4) codes[5] = static_cast<uint8_t>(codes[5] + 1 + image / 9);
    };
    slow.change_by_image = [](int node, int image, uint8_t* codes) {
      if (node == 1 && (image == 9 || image == 10)) codes[2] = static_cast<uint8_t>(codes[2] + 1);
    };
    return compare(graph, {{"qat_graph", &first}, {"cpu", &second}, {"reference", &slow, 10}}, set, kBatchSize);
  };
  const EvaluationSet whole = testing::all_of(dataset_);
  const Comparison alone = work(whole);
  EXPECT_EQ(alone.layers[1].differing, (std::vector<long>{3, 1}));
  for (const Comparison& c : each<Comparison>(work, whole)) {
    EXPECT_EQ(c.images, alone.images);
    EXPECT_EQ(c.program_images, alone.program_images);
    EXPECT_EQ(c.differing_predictions, alone.differing_predictions);
    ASSERT_EQ(c.layers.size(), alone.layers.size());
    for (size_t i = 0; i < c.layers.size(); ++i) {
      EXPECT_EQ(c.layers[i].codes, alone.layers[i].codes);
      EXPECT_EQ(c.layers[i].differing, alone.layers[i].differing);
      EXPECT_EQ(c.layers[i].largest_lsb, alone.layers[i].largest_lsb);
      EXPECT_EQ(c.layers[i].signal, alone.layers[i].signal);
      EXPECT_EQ(c.layers[i].noise, alone.layers[i].noise);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Processes, SharingTest, ::testing::Values(1, 2, 3, 9));

}  // namespace
}  // namespace octet
