// SPDX-License-Identifier: Apache-2.0
#include "src/data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numbers>
#include <thread>

#include "src/base/error.h"
#include "src/base/threads.h"
#include "src/data/place.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;

/// Returns how many images a worker takes at a time: few enough that all workers have some of the batches that are
/// decoded ahead, twice, as images take unequal times.
size_t part_of(const LoaderOptions& options) {
  constexpr size_t kMost = 16;
  const size_t ahead = static_cast<size_t>(options.batch_size) * static_cast<size_t>(options.prefetch);
  const size_t workers = static_cast<size_t>(std::max(options.workers, 1));
  return std::clamp<size_t>(ahead / (2 * workers), 1, kMost);
}

/// Returns a number from the normal distribution (Box and Muller, 1958).
double draw_normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

/// Returns the logarithm of a number from Gamma(shape, 1): Marsaglia and Tsang, A simple method for generating gamma
/// variables, 2000. Of small shapes the numbers themselves are too small for a double.
double draw_log_gamma(double shape, Random& random) {
  if (shape < 1) return draw_log_gamma(shape + 1, random) + std::log(1 - random.uniform()) / shape;
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = draw_normal(random), v = std::pow(std::max(1 + c * x, 0.0), 3);
    if (v > 0 && std::log(1 - random.uniform()) < x * x / 2 + d * (1 - v + std::log(v))) return std::log(d * v);
  }
}

/// Returns a number from Beta(alpha, alpha).
double draw_beta(double alpha, Random& random) {
  const double a = draw_log_gamma(alpha, random), b = draw_log_gamma(alpha, random);
  return 1 / (1 + std::exp(b - a));
}

/// What makes batches of one size.
struct Maker {
  Transform transform;
  std::unique_ptr<LabelWriter> labels;
};

/// A batch being filled, or waiting for next().
struct Slot {
  Batch batch;
  size_t parts_left = 0;
  std::exception_ptr error;
};

}  // namespace

struct Loader::State {
  State(const Dataset& dataset_, std::vector<size_t> indices_, const Transform& transform_,
        const LoaderOptions& options_)
      : dataset(dataset_), indices(std::move(indices_)), options(options_) {
    check_transform(transform_);
    const std::vector<ImageSize> own = {{transform_.height, transform_.width}};
    for (const ImageSize& size : options.train ? input_sizes(transform_) : own) {
      Maker& maker = makers.emplace_back(Maker{transform_, nullptr});
      maker.transform.height = size.height;
      maker.transform.width = size.width;
      maker.labels = label_writer(dataset, maker.transform);
    }
    if (options.batch_size < 1 || options.workers < 0 || options.prefetch < 1 || options.first_batch < 0 ||
        options.share < 0 || options.share >= options.shares) {
      throw usage_error(fmt::format("loader: batch size {}, {} workers, {} batches ahead, first batch {}",
                                    options.batch_size, options.workers, options.prefetch, options.first_batch));
    }
    const size_t size = static_cast<size_t>(options.batch_size), shared = size * static_cast<size_t>(options.shares);
    if (options.train && indices.size() < shared) {
      throw data_error(fmt::format("{} training images are less than one batch of {}", indices.size(), shared));
    }
    for (const size_t index : indices) {
      if (index >= dataset.size()) throw usage_error(fmt::format("loader: index {} of {}", index, dataset.size()));
    }
    if (options.train) shuffle_for(epoch(), indices);
    batches = options.train ? indices.size() / shared : (indices.size() + size - 1) / size;
    part_size = part_of(options);
    parts = (size + part_size - 1) / part_size;
    taken = static_cast<size_t>(options.first_batch);
    part = taken * parts;
    for (int i = 0; i < options.prefetch; ++i) slots.push_back({.batch = Batch(options.memory)});
  }

  /// Called after construction, so that the destructor joins the threads that run if another one cannot start.
  void start_workers() {
    workers.reserve(options.workers);
    for (int i = 0; i < options.workers; ++i) {
      workers.push_back(start_thread([this] { work(); },
                                     fmt::format("worker {} of {} that decodes images", i + 1, options.workers),
                                     "ask for fewer by data.workers; 0: none"));
    }
  }

  ~State() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    wake_workers.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  Epoch epoch() const { return {options.seed, options.epoch}; }
  /// Returns what makes batch number b: of the sizes that there are one, the same in every process.
  const Maker& maker_of(size_t b) const {
    if (makers.size() == 1) return makers.front();
    Random random({options.seed, static_cast<uint64_t>(options.epoch), 3, b});
    return makers[random.below(static_cast<uint32_t>(makers.size()))];
  }

  /// Returns where batch number b of this process begins in the epoch.
  size_t place_of(size_t b) const { return (b * options.shares + options.share) * options.batch_size; }

  /// Allocates batch number b. If memory runs out, the batch stays empty and the other workers skip it.
  void prepare(Slot& slot, size_t b) const {
    slot.parts_left = parts;
    slot.error = nullptr;
    slot.batch.size = 0;
    const size_t start = place_of(b);
    const size_t size = std::min<size_t>(options.batch_size, indices.size() - start);
    const Maker& maker = maker_of(b);
    slot.batch.input = {maker.transform.height, maker.transform.width};
    slot.batch.images.resize(options.plan ? 0 : size * maker.transform.bytes());
    const bool placed = maker.transform.fit != Fit::crop;
    slot.batch.plans.resize(options.plan && !placed ? size : 0);
    slot.batch.placed.resize(options.plan && placed ? size : 0);
    slot.batch.labels_shape = maker.labels->shape();
    slot.batch.labels.resize(size * maker.labels->count());
    slot.batch.indices.assign(indices.begin() + start, indices.begin() + start + size);
    slot.batch.sizes.assign(size, {});
    slot.batch.size = static_cast<int>(size);
  }

  /// Decodes and transforms images [first, end) of batch number b.
  void fill(Batch& batch, size_t b, size_t first, size_t end) const {
    const Maker& maker = maker_of(b);
    const Transform& transform = maker.transform;
    const LabelWriter& labels = *maker.labels;
    for (size_t i = first; i < end; ++i) {
      const size_t index = batch.indices[i];
      try {
        if (options.plan) {
          Random random = random_for(epoch(), place_of(b) + i);
          plan(maker, batch, i, random, batch.labels.data() + i * labels.count());
          continue;
        }
        const Image image = dataset.read(index);
        batch.sizes[i] = {image.height, image.width};
        uint8_t* out = batch.images.data() + i * maker.transform.bytes();
        int64_t* labels_out = batch.labels.data() + i * labels.count();
        if (options.train) {
          Random random = random_for(epoch(), place_of(b) + i);
          if (options.join && transform.joins()) {
            fill_joined(maker, index, image, random, out, labels_out);
            continue;
          }
          if (transform.mixup_alpha > 0) {
            fill_mixed(maker, index, image, random, out, labels_out);
            continue;
          }
          Random drawn = random;
          training_pixels(image, transform, drawn, out);
          labels.write_training(index, {image.height, image.width}, random, labels_out);
        } else {
          evaluation_pixels(image, transform, out);
          labels.write(index, {image.height, image.width}, labels_out);
        }
      } catch (const Error& error) {
        const std::string name = dataset.describe(index), what = error.what();
        throw Error(error.code(), what.rfind(name, 0) == 0 ? what : name + ": " + what);
      }
    }
  }

  /// Makes the mean of a training image and another of the epoch, weighted (Zhang et al., mixup, arXiv 1710.09412).
  void fill_mixed(const Maker& maker, size_t index, const Image& image, Random& random, uint8_t* out,
                  int64_t* labels_out) const {
    const Transform& transform = maker.transform;
    training_pixels(image, transform, random, out);
    const size_t other = another(random);
    const double weight = draw_beta(transform.mixup_alpha, random);
    std::vector<uint8_t> mixed(maker.transform.bytes());
    training_pixels(dataset.read(other), transform, random, mixed.data());
    for (size_t i = 0; i < mixed.size(); ++i)
      out[i] = static_cast<uint8_t>(out[i] + weight * (mixed[i] - out[i]) + 0.5);
    maker.labels->write_mixed(index, other, weight, labels_out);
  }

  /// Makes a training image that may be a mosaic, and may be mixed with another such of the epoch.
  void fill_joined(const Maker& maker, size_t index, const Image& image, Random& random, uint8_t* out,
                   int64_t* labels_out) const {
    std::vector<Image> images;
    const auto size_of = [&](size_t i) {
      images.push_back(images.empty() ? image : dataset.read(i));
      return ImageSize{images.back().height, images.back().width};
    };
    const Composition composition = compose(index, maker.transform, /*join=*/true, {indices, size_of}, random);
    write_composition(images, composition, maker.transform, out);
    maker.labels->write_joined(composition.tiles, labels_out);
  }

  /// Plans a training image for a GPU, and writes its labels.
  void plan(const Maker& maker, Batch& batch, size_t i, Random& random, int64_t* labels_out) const {
    const Transform& transform = maker.transform;
    const size_t index = batch.indices[i];
    const Random drawn = random;
    if (transform.fit == Fit::crop) {
      const CropPlan& plan = batch.plans[i] = plan_crop(dataset, index, transform, random);
      batch.sizes[i] = {plan.image.height, plan.image.width};
      maker.labels->write_training(index, batch.sizes[i], drawn, labels_out);
      return;
    }
    const bool join = options.join && transform.joins();
    Composition composition;
    batch.placed[i] = plan_placed(dataset, indices, index, transform, join, random, composition);
    batch.sizes[i] = composition.tiles.front().size;
    join ? maker.labels->write_joined(composition.tiles, labels_out)
         : maker.labels->write_training(index, batch.sizes[i], drawn, labels_out);
  }

  size_t another(Random& random) const { return indices[random.below(static_cast<uint32_t>(indices.size()))]; }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake_workers.wait(lock,
                        [this] { return stopping || (part / parts < batches && part / parts < taken + slots.size()); });
      if (stopping) return;
      const size_t b = part / parts, p = part % parts;
      ++part;
      Slot& slot = slots[b % slots.size()];
      std::exception_ptr error;
      try {
        if (p == 0) prepare(slot, b);
        lock.unlock();
        const size_t size = static_cast<size_t>(slot.batch.size);
        fill(slot.batch, b, std::min(p * part_size, size), std::min((p + 1) * part_size, size));
      } catch (...) {
        error = std::current_exception();
      }
      if (!lock.owns_lock()) lock.lock();
      if (error && !slot.error) slot.error = error;
      if (--slot.parts_left == 0) wake_consumer.notify_one();
    }
  }

  /// Waits for batch number `taken` and returns its slot.
  Slot& finished_slot() {
    const Clock::time_point start = Clock::now();
    Slot& slot = slots[taken % slots.size()];
    if (workers.empty()) {
      prepare(slot, taken);
      fill(slot.batch, taken, 0, static_cast<size_t>(slot.batch.size));
    } else {
      std::unique_lock lock(mutex);
      wake_consumer.wait(lock, [&] { return part >= (taken + 1) * parts && slot.parts_left == 0; });
    }
    waited += std::chrono::duration<double>(Clock::now() - start).count();
    if (slot.error) std::rethrow_exception(slot.error);
    return slot;
  }

  const Dataset& dataset;
  std::vector<size_t> indices;  ///< in the order of this epoch
  const LoaderOptions options;
  std::vector<Maker> makers;  ///< by size
  size_t batches = 0;         ///< in the epoch
  size_t part_size = 0;       ///< images that a worker takes at a time
  size_t parts = 0;           ///< of part_size images in a batch
  double waited = 0;

  std::mutex mutex;  ///< guards what follows
  std::condition_variable wake_workers, wake_consumer;
  size_t part = 0;   ///< the next part to hand out, counted over all batches
  size_t taken = 0;  ///< number of batches that next() has given out
  bool stopping = false;
  std::vector<Slot> slots;  ///< batch b is in slot b % slots.size()
  std::vector<std::thread> workers;
};

Loader::Loader(const Dataset& dataset, std::vector<size_t> indices, const Transform& transform,
               const LoaderOptions& options)
    : state_(std::make_unique<State>(dataset, std::move(indices), transform, options)) {
  state_->start_workers();
}

Loader::~Loader() = default;

int Loader::batches() const { return static_cast<int>(state_->batches); }

bool Loader::next(Batch& batch) {
  State& s = *state_;
  if (s.taken >= s.batches) return false;
  Slot& slot = s.finished_slot();
  {
    const std::lock_guard lock(s.mutex);
    std::swap(batch, slot.batch);
    ++s.taken;
  }
  s.wake_workers.notify_all();
  return true;
}

double Loader::waited_seconds() const { return state_->waited; }

}  // namespace octet
