// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <set>
#include <thread>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/eval/evaluate.h"
#include "tests/eval/fakes.h"

namespace octet {
namespace {

using std::chrono::milliseconds;
using testing::all_of;
using testing::FakeDataset;
using testing::FunctionProgram;

class Evaluate : public ::testing::Test {
 protected:
  void SetUp() override { set_verbosity(Verbosity::quiet); }
};

EvaluateOptions options(int classes, int batch_size, int latency_images = 0) {
  EvaluateOptions o;
  o.classes = classes;
  o.batch_size = batch_size;
  o.latency_images = latency_images;
  return o;
}

/// Logit 1 for class (image's number + shift) % classes, else 0.
FunctionProgram::Function shifted(int classes, int shift) {
  return [=](const uint8_t* images, int batch, float* logits) {
    for (int i = 0; i < batch; ++i) {
      for (int k = 0; k < classes; ++k)
        logits[i * classes + k] = (images[4 * i] / 4 + shift) % classes == k ? 1.0f : 0.0f;
    }
  };
}

/// Takes its time for every batch size that it has not seen, in prepare() or else in run().
class PreparingProgram final : public FunctionProgram {
 public:
  using FunctionProgram::FunctionProgram;
  void prepare(int batch) override {
    if (prepared_.insert(batch).second) std::this_thread::sleep_for(milliseconds(200));
  }
  void run(const uint8_t* images, int batch, const OutputMemory& logits, const NodeTap& tap) override {
    prepare(batch);
    FunctionProgram::run(images, batch, logits, tap);
  }

 private:
  std::set<int> prepared_;
};

TEST_F(Evaluate, PreparingForABatchSizeIsNotTimed) {
  const FakeDataset dataset(19, 4);  // batches of 8, 8 and 3
  PreparingProgram program([](const uint8_t*, int, float*) { std::this_thread::sleep_for(milliseconds(2)); });
  const Evaluation e = evaluate("prepared", program, all_of(dataset), options(4, 8, 4));
  EXPECT_GT(e.images_per_second, 11 / 0.1);  // 11 images in 2 runs of 2 ms
  EXPECT_LT(e.latency_p99_ms, 100);
}

TEST_F(Evaluate, CountsWhatTheProgramPredicts) {
  constexpr int kClasses = 7;
  const FakeDataset dataset(20, kClasses);
  FunctionProgram right(shifted(kClasses, 0)), wrong(shifted(kClasses, 1));
  const Evaluation a = evaluate("right", right, all_of(dataset), options(kClasses, 6));
  EXPECT_EQ(a.name, "right");
  EXPECT_EQ(a.images, 20);
  EXPECT_EQ(a.top1, 1);
  EXPECT_EQ(a.top5, 1);
  EXPECT_NEAR(a.loss, std::log(std::exp(1.0) + 6) - 1, 1e-12);
  ASSERT_EQ(a.predictions.size(), 20u);
  EXPECT_EQ(a.right, std::vector<bool>(20, true));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(a.predictions[i], i % kClasses);
  for (int k = 0; k < kClasses; ++k) EXPECT_EQ(a.confusion[k * kClasses + k], k < 6 ? 3 : 2);

  // The label is one of six equal logits behind the top one: the lowest four of them are in the top five.
  const Evaluation b = evaluate("wrong", wrong, all_of(dataset), options(kClasses, 6));
  EXPECT_EQ(b.top1, 0);
  EXPECT_EQ(b.right, std::vector<bool>(20, false));
  int in_top5 = 0;
  for (int i = 0; i < 20; ++i) {
    const int label = i % kClasses, top = (label + 1) % kClasses;
    in_top5 += label - (top < label ? 1 : 0) < 4;
  }
  EXPECT_DOUBLE_EQ(b.top5, in_top5 / 20.0);
  EXPECT_EQ(differing_predictions(a, b), 20);
  EXPECT_EQ(differing_predictions(a, a), 0);
}

TEST_F(Evaluate, FollowsTheIndexList) {
  const FakeDataset dataset(20, 5);
  FunctionProgram program(shifted(5, 0));
  EvaluationSet set = all_of(dataset);
  set.indices = {13, 2, 19};
  const Evaluation e = evaluate("some", program, set, options(5, 2));
  EXPECT_EQ(e.predictions, (std::vector<int>{3, 2, 4}));
}

TEST_F(Evaluate, DecodingDoesNotCount) {
  const FakeDataset dataset(16, 4, milliseconds(20));  // decoding alone: 50 images/s
  FunctionProgram program(shifted(4, 0));
  EvaluationSet set = all_of(dataset);
  set.workers = 0;
  EXPECT_GT(evaluate("fast", program, set, options(4, 4)).images_per_second, 200);
}

TEST_F(Evaluate, FirstBatchIsWarmUp) {
  const FakeDataset dataset(16, 4);
  bool first = true;
  FunctionProgram program([&](const uint8_t* images, int batch, float* logits) {
    if (first) std::this_thread::sleep_for(milliseconds(400));
    first = false;
    shifted(4, 0)(images, batch, logits);
  });
  EXPECT_GT(evaluate("warm", program, all_of(dataset), options(4, 4)).images_per_second, 120);  // 40 if counted
  first = true;
  EXPECT_LT(evaluate("single batch", program, all_of(dataset), options(4, 16)).images_per_second, 41);
}

/// Also where a batch is one image: the second is timed.
TEST_F(Evaluate, OneBatchIsWarmUpHoweverSmall) {
  const FakeDataset dataset(2, 4);
  int runs = 0;
  FunctionProgram program([&](const uint8_t* images, int batch, float* logits) {
    std::this_thread::sleep_for(milliseconds(runs++ == 0 ? 400 : 2));
    shifted(4, 0)(images, batch, logits);
  });
  const double speed = evaluate("two", program, all_of(dataset), options(4, 1)).images_per_second;
  EXPECT_GT(speed, 5);  // 5 if both counted, 0 if none
  EXPECT_LE(speed, 500);
}

TEST_F(Evaluate, LatencyIsOfSingleImagesAfterWarmUp) {
  const FakeDataset dataset(16, 4);
  std::vector<int> batches;
  int singles = 0;
  FunctionProgram program([&](const uint8_t* images, int batch, float* logits) {
    batches.push_back(batch);
    if (batch == 1) std::this_thread::sleep_for(milliseconds(singles++ == 0 ? 300 : 2));
    shifted(4, 0)(images, batch, logits);
  });
  const Evaluation e = evaluate("single", program, all_of(dataset), options(4, 8, 10));
  EXPECT_EQ(batches, (std::vector<int>{8, 8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(e.latency_runs, 10);
  EXPECT_GE(e.latency_median_ms, 2);
  EXPECT_GE(e.latency_p99_ms, e.latency_median_ms);
  EXPECT_LT(e.latency_p99_ms, 150);  // the slow first run was warm-up
}

TEST_F(Evaluate, SlowProgramsAreTimedLess) {
  const FakeDataset dataset(64, 4);
  FunctionProgram program([&](const uint8_t* images, int batch, float* logits) {
    if (batch == 1) std::this_thread::sleep_for(milliseconds(20));
    shifted(4, 0)(images, batch, logits);
  });
  EvaluateOptions o = options(4, 64, 64);
  o.latency_seconds = 0.1;
  const Evaluation e = evaluate("slow", program, all_of(dataset), o);
  EXPECT_GE(e.latency_runs, 1);
  EXPECT_LE(e.latency_runs, 6);
  EXPECT_GE(e.latency_median_ms, 20);
}

TEST_F(Evaluate, RefusesWhatDoesNotFit) {
  const FakeDataset dataset(8, 4);
  FunctionProgram program(shifted(3, 0));
  try {
    evaluate("small", program, all_of(dataset), options(3, 4));
    FAIL() << "label 3 of a network with 3 classes was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_NE(std::string(error.what()).find("label 3"), std::string::npos) << error.what();
  }
  EvaluationSet nothing = all_of(dataset);
  nothing.indices.clear();
  EXPECT_THROW(evaluate("empty", program, nothing, options(4, 4)), Error);
}

TEST_F(Evaluate, CtrlCEndsIt) {
  // In a process of its own: the flag stays set.
  const auto interrupted_run = [] {
    install_interrupt_handler();
    const FakeDataset dataset(8, 4);
    int runs = 0;
    FunctionProgram program([&](const uint8_t*, int, float*) {
      if (++runs == 2) std::raise(SIGINT);
    });
    try {
      evaluate("interrupted", program, all_of(dataset), options(4, 1));
    } catch (const Error& error) {
      std::_Exit(error.code() == ExitCode::interrupted && runs == 2 ? 42 : 1);
    }
    std::_Exit(2);
  };
  EXPECT_EXIT(interrupted_run(), ::testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace octet
