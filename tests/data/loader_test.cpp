// SPDX-License-Identifier: Apache-2.0
// The loader: the same batches for any number of threads, resuming, errors.
#include "src/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/base/random.h"
#include "src/data/labels.h"
#include "tests/base/thread_limit.h"
#include "tests/data/images.h"

namespace octet {
namespace {

using testing::data_refusal;
using testing::expect_part;

constexpr int kImages = 107;

DatasetSpec synthetic(int images = kImages) {
  return {.format = "synthetic",
          .split = "train",
          .channels = 3,
          .image_size = 12,
          .synthetic_size = images,
          .synthetic_classes = 7};
}

std::vector<size_t> all(size_t count) {
  std::vector<size_t> indices(count);
  std::iota(indices.begin(), indices.end(), size_t{0});
  return indices;
}

Transform augmented() { return {.height = 12, .width = 12, .pad = 2, .flip = true, .cutout = 3, .fill = {9, 9, 9}}; }

LoaderOptions options_of(bool train, int workers) {
  return {.batch_size = 20, .train = train, .seed = 3, .workers = workers};
}

std::vector<Batch> run(const Dataset& dataset, const LoaderOptions& options) {
  Loader loader(dataset, all(dataset.size()), augmented(), options);
  std::vector<Batch> batches;
  for (Batch batch; loader.next(batch);) batches.push_back(batch);
  return batches;
}

void expect_equal(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].size, b[i].size);
    EXPECT_EQ(a[i].images, b[i].images);
    EXPECT_EQ(a[i].labels, b[i].labels);
    EXPECT_EQ(a[i].indices, b[i].indices);
  }
}

TEST(Loader, BatchesDoNotDependOnThreads) {
  const auto dataset = open_dataset(synthetic());
  for (const bool train : {false, true}) {
    const auto expected = run(*dataset, options_of(train, 0));
    EXPECT_EQ(expected.size(), train ? 5u : 6u);
    for (const int workers : {1, 3}) {
      LoaderOptions options = options_of(train, workers);
      for (const int prefetch : {1, 4}) {
        options.prefetch = prefetch;
        expect_equal(run(*dataset, options), expected);
      }
    }
  }
}

/// One colour an image, which says what of which two is in a mixed one.
class PlainColours : public Dataset {
 public:
  size_t size() const override { return 51; }
  int channels() const override { return 1; }
  int label(size_t index) const override { return static_cast<int>(index); }
  Image read(size_t index) const override {
    return {4, 4, 1, std::vector<uint8_t>(16, static_cast<uint8_t>(5 * index))};
  }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::string describe(size_t) const override { return "plain"; }

 private:
  std::vector<std::string> names_ = std::vector<std::string>(51, "n");
};

TEST(Loader, MixesImagesAndTheirLabelsByWeightsOfBeta) {
  const PlainColours dataset;
  Transform t{.channels = 1, .height = 4, .width = 4};
  for (const double alpha : {0.2, 1.0, 4.0}) {
    t.mixup_alpha = alpha;
    double sum = 0, squares = 0;
    int seen = 0, different = 0;
    for (int epoch = 0; epoch < 60; ++epoch) {
      LoaderOptions options{.batch_size = 51, .train = true, .seed = 3, .epoch = epoch, .workers = epoch % 3};
      Batch batch;
      Loader(dataset, all(51), t, options).next(batch);
      ASSERT_EQ(batch.labels_shape, (std::vector<int64_t>{kMixedValues}));
      for (int i = 0; i < batch.size; ++i) {
        const int64_t* label = &batch.labels[static_cast<size_t>(i) * kMixedValues];
        EXPECT_EQ(label[0], static_cast<int64_t>(batch.indices[static_cast<size_t>(i)]));
        const double weight = static_cast<double>(label[2]) / kMixedUnits;
        const double wanted =
            5 * ((1 - weight) * static_cast<double>(label[0]) + weight * static_cast<double>(label[1]));
        ASSERT_NEAR(batch.images[static_cast<size_t>(i) * 16 + 7], wanted, 0.51);
        sum += weight, squares += weight * weight;
        different += label[0] != label[1];
        ++seen;
      }
    }
    const double mean = sum / seen, variance = squares / seen - mean * mean;
    EXPECT_NEAR(mean, 0.5, 0.03) << alpha;
    EXPECT_NEAR(variance, 1 / (4 * (2 * alpha + 1)), 0.006) << alpha;
    EXPECT_GT(different, 0.95 * seen);
  }
  Batch batch;
  t.mixup_alpha = 0;
  Loader(dataset, all(51), t, {.batch_size = 51, .train = true}).next(batch);
  EXPECT_TRUE(batch.labels_shape.empty());
}

TEST(Loader, TrainingShufflesByEpochAndSeed) {
  const auto dataset = open_dataset(synthetic());
  LoaderOptions options = options_of(true, 2);
  const auto first = run(*dataset, options);
  std::set<size_t> seen;
  for (const Batch& batch : first) seen.insert(batch.indices.begin(), batch.indices.end());
  EXPECT_EQ(seen.size(), 100u);  // every image at most once, the short batch is dropped
  options.epoch = 1;
  const auto second = run(*dataset, options);
  EXPECT_NE(first[0].indices, second[0].indices);
  options.epoch = 0;
  options.seed = 4;
  EXPECT_NE(first[0].indices, run(*dataset, options)[0].indices);
}

TEST(Loader, EvaluationKeepsTheOrderAndTheLastShortBatch) {
  const auto dataset = open_dataset(synthetic());
  const auto batches = run(*dataset, options_of(false, 2));
  size_t index = 0;
  for (const Batch& batch : batches) {
    for (int i = 0; i < batch.size; ++i, ++index) {
      EXPECT_EQ(batch.indices[i], index);
      EXPECT_EQ(batch.labels[i], dataset->label(index));
      const Image image = dataset->read(index);
      const auto* first = batch.images.data() + i * image.pixels.size();
      ASSERT_EQ(std::vector<uint8_t>(first, first + image.pixels.size()), image.pixels);
    }
  }
  EXPECT_EQ(index, size_t{kImages});
  EXPECT_EQ(batches.back().size, 7);
}

TEST(Loader, ResumesInTheMiddleOfAnEpoch) {
  const auto dataset = open_dataset(synthetic());
  for (const int workers : {0, 3}) {
    LoaderOptions options = options_of(true, workers);
    const auto whole = run(*dataset, options);
    options.first_batch = 3;
    expect_equal(run(*dataset, options), {whole.begin() + 3, whole.end()});
    options.first_batch = 5;
    EXPECT_TRUE(run(*dataset, options).empty());
  }
}

/// One image, many times.
class Same : public Dataset {
 public:
  size_t size() const override { return 100; }
  int channels() const override { return 3; }
  int label(size_t) const override { return 0; }
  Image read(size_t) const override { return testing::noise(12, 12, 3, 1); }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::string describe(size_t) const override { return "same"; }

 private:
  std::vector<std::string> names_ = {"only"};
};

TEST(Loader, EveryImageOfEveryEpochIsAugmentedItsOwnWay) {
  const Same dataset;
  std::set<std::string> seen;  // batches' pixels
  for (const int epoch : {0, 1}) {
    LoaderOptions options = options_of(true, 2);
    options.epoch = epoch;
    for (const Batch& batch : run(dataset, options)) {
      EXPECT_TRUE(seen.emplace(batch.images.begin(), batch.images.end()).second);
      std::set<std::string> images;
      const size_t bytes = batch.images.size() / batch.size;
      for (int i = 0; i < batch.size; ++i) {
        images.emplace(batch.images.begin() + i * bytes, batch.images.begin() + (i + 1) * bytes);
      }
      EXPECT_GE(images.size(), 17u);  // of 20, among 25 places, 2 mirrors and about 100 cut-outs
    }
  }
}

TEST(Loader, MayBeLeftEarly) {
  const auto dataset = open_dataset(synthetic(5000));
  Loader loader(*dataset, all(5000), augmented(), options_of(true, 3));
  Batch batch;
  EXPECT_TRUE(loader.next(batch));
  EXPECT_EQ(loader.batches(), 250);
}

/// Images that are read only while others are: read() waits until so many threads are in it, or for a while.
class Together : public Same {
 public:
  explicit Together(int threads) : threads_(threads) {}
  Image read(size_t index) const override {
    {
      std::unique_lock lock(mutex_);
      most_ = std::max(most_, ++reading_);
      enough_.notify_all();
      enough_.wait_for(lock, std::chrono::seconds(1), [this] { return most_ >= threads_; });
      --reading_;
    }
    return Same::read(index);
  }
  int most() const { return most_; }

 private:
  const int threads_;
  mutable std::mutex mutex_;
  mutable std::condition_variable enough_;
  mutable int reading_ = 0, most_ = 0;
};

// Sixteen images ahead are work for eight threads.
TEST(Loader, ManyWorkersShareSmallBatches) {
  const Together dataset(8);
  LoaderOptions options = options_of(false, 8);
  options.batch_size = 4, options.prefetch = 4;
  EXPECT_FALSE(run(dataset, options).empty());
  EXPECT_EQ(dataset.most(), 8);
}

/// Refuses one image.
class Broken : public Dataset {
 public:
  size_t size() const override { return 100; }
  int channels() const override { return 3; }
  int label(size_t) const override { return 0; }
  Image read(size_t index) const override {
    if (index == 57) throw data_error("file57: cut off");
    const int side = index == 77 ? 4 : 16;
    return testing::noise(side, side, 3, index);
  }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::string describe(size_t index) const override { return "file" + std::to_string(index); }

 private:
  std::vector<std::string> names_ = {"only"};
};

/// Takes its time over each image.
class Slow : public Broken {
 public:
  static constexpr std::chrono::milliseconds kTime{2};
  Image read(size_t index) const override {
    std::this_thread::sleep_for(kTime);
    return Broken::read(index);
  }
};

TEST(Loader, TellsHowLongItsReaderWaited) {
  const Slow dataset;
  Loader loader(dataset, all(20), augmented(), options_of(false, 0));
  EXPECT_EQ(loader.waited_seconds(), 0);
  Batch batch;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(loader.next(batch));
  const std::chrono::duration<double> wait = std::chrono::steady_clock::now() - start;
  EXPECT_GE(loader.waited_seconds(), 20 * std::chrono::duration<double>(Slow::kTime).count());
  EXPECT_LE(loader.waited_seconds(), wait.count());
  const double waited = loader.waited_seconds();
  std::this_thread::sleep_for(Slow::kTime);  // its reader's own work is no waiting
  EXPECT_EQ(loader.waited_seconds(), waited);
}

TEST(Loader, ErrorsArriveInOrderAndNameTheImage) {
  const Broken dataset;
  for (const int workers : {0, 1, 3}) {
    Transform t = augmented();
    LoaderOptions options = options_of(false, workers);
    Loader loader(dataset, all(100), t, options);
    Batch batch;
    EXPECT_TRUE(loader.next(batch));
    EXPECT_TRUE(loader.next(batch));
    EXPECT_EQ(data_refusal([&] { loader.next(batch); }), "file57: cut off");
    EXPECT_EQ(data_refusal([&] { loader.next(batch); }), "file57: cut off");
    Loader small(dataset, {77}, t, options);
    expect_part(data_refusal([&] { small.next(batch); }), "file77: image of 4x4 is smaller");
  }
}

TEST(Loader, WrongOptionsAreRefused) {
  const auto dataset = open_dataset(synthetic());
  expect_part(data_refusal([&] { Loader(*dataset, all(19), augmented(), options_of(true, 1)); }),
              "less than one batch");
  LoaderOptions options = options_of(false, 1);
  options.batch_size = 0;
  EXPECT_THROW(Loader(*dataset, all(19), augmented(), options), Error);
  EXPECT_THROW(Loader(*dataset, {kImages}, augmented(), options_of(false, 1)), Error);
  Transform t = augmented();
  t.fill.clear();
  EXPECT_THROW(Loader(*dataset, all(19), t, options_of(false, 1)), Error);
}

TEST(LoaderDeathTest, AWorkerThatDoesNotStartIsAnErrorAndTheOthersEnd) {
  const auto start = [] {
    const auto dataset = open_dataset(synthetic());
    LoaderOptions options;
    options.workers = 40;
    const Loader loader(*dataset, all(dataset->size()), augmented(), options);
  };
  EXPECT_EXIT(testing::run_with_few_threads(start), ::testing::ExitedWithCode(1),
              "worker [0-9]+ of 40 that decodes images did not start .*; ask for fewer by data.workers");
}

}  // namespace
}  // namespace octet
