// SPDX-License-Identifier: Apache-2.0
// boxes_bench: how long an int8 detector takes from image files to boxes, as one JSON object: the median of one image
// after the other, and images/s in batches, whose files are decoded and whose boxes are found on all cores while the
// batch before is computed. tools/lab/bench/detector_gpu.py runs it beside PyTorch.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory_resource>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/numbers.h"
#include "src/base/threads.h"
#include "src/data/image_files.h"
#include "src/data/loader.h"
#include "src/detect/decode.h"
#include "src/engine/engine.h"
#include "src/net/checkpoint.h"
#if OCTET_CUDA
#include "src/cuda/memory.h"
#endif

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kFewestRuns = 10;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Memory that a GPU reads and writes while the processor goes on.
std::pmr::memory_resource* host_memory(const Engine& engine) {
#if OCTET_CUDA
  if (engine.on_gpu()) return pinned_memory();
#endif
  return std::pmr::get_default_resource();
}

/// The outputs of a batch, in memory that a GPU writes directly.
class Outputs {
 public:
  Outputs(const Engine& engine, const Int8Graph& graph, int batch) {
    for (const int node : graph.outputs)
      buffers_.emplace_back(graph.nodes[node].image_bytes() * batch, host_memory(engine));
    for (auto& buffer : buffers_) {
      written_.push_back(buffer.data());
      read_.push_back(buffer.data());
    }
  }
  OutputMemory memory() const { return OutputMemory(written_); }
  const OutputPointers& all() const { return read_; }

 private:
  std::vector<std::pmr::vector<uint8_t>> buffers_;
  std::vector<void*> written_;  // the data of buffers_
  OutputPointers read_;         // likewise
};

struct Options {
  std::string checkpoint, engine = "cuda";
  std::vector<std::string> images;
  int batch = 32, threads = 0;
  double seconds = 2, score = 0;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        threads_(options.threads > 0 ? options.threads : usable_cores()),
        graph_(read_checkpoint(options.checkpoint)),
        engine_(find_engine(options.engine)),
        program_(engine_.compile(graph_, {.max_batch = options.batch, .threads = options.threads})),
        images_(options.images, graph_.input_shape().c, Orientation::exif),
        transform_(evaluation_transform(graph_.input_shape(), graph_.preprocessing)) {
    require_boxes(graph_);
    decoder_ = box_decoder(graph_);
    boxes_ = box_options(*graph_.boxes);
    if (options.score > 0) boxes_.score_threshold = options.score;
  }

  nlohmann::json run() {
    nlohmann::json result{{"program", "octet"},
                          {"engine", options_.engine},
                          {"images", images_.size()},
                          {"threads", threads_},
                          {"batch", options_.batch}};
    time_single(result);
    time_batches(result);
    return result;
  }

 private:
  std::vector<Detection> boxes_of(const Outputs& outputs, int index, const ImageSize& size) const {
    return decode_boxes(decoder_, outputs.all(), index, size, boxes_);
  }

  /// One image after the other, its file read within.
  void time_single(nlohmann::json& result) {
    const Outputs outputs(engine_, graph_, 1);
    const auto one = [&](size_t index) {
      const Image image = images_.read(index);
      const Image input = evaluation_image(image, transform_);
      program_->run(input.pixels.data(), 1, outputs.memory());
      return boxes_of(outputs, 0, {image.height, image.width}).size();
    };
    program_->prepare(1);
    one(0);
    std::vector<double> milliseconds;
    size_t found = 0;
    for (const auto start = Clock::now();
         milliseconds.size() < kFewestRuns || seconds_since(start) < options_.seconds;) {
      const auto begin = Clock::now();
      found += one(milliseconds.size() % images_.size());
      milliseconds.push_back(1e3 * seconds_since(begin));
    }
    result["boxes_an_image"] = static_cast<double>(found) / static_cast<double>(milliseconds.size());
    result["runs"] = milliseconds.size();
    result["median_ms"] = median(milliseconds);
    result["p99_ms"] = percentile(std::move(milliseconds), 0.99);
  }

  /// Batches of files, over and over. Each is decoded ahead by the loader's threads and computed while the boxes of the
  /// batch before are found.
  void time_batches(nlohmann::json& result) {
    constexpr size_t kWarmUp = 4;
    const auto batch_size = static_cast<size_t>(options_.batch);
    program_->prepare(options_.batch);
    // A first estimate of how many batches the time has room for: as many as the engine alone computes in it.
    const std::vector<uint8_t> grey(batch_size * static_cast<size_t>(graph_.input_shape().elements()), 114);
    const Outputs outputs(engine_, graph_, options_.batch);
    const auto begin = Clock::now();
    program_->run(grey.data(), options_.batch, outputs.memory());
    const auto fit = static_cast<size_t>(options_.seconds / seconds_since(begin));
    const size_t batches = kWarmUp + std::clamp<size_t>(fit, 4, 400);

    std::vector<size_t> indices(batches * batch_size);
    std::iota(indices.begin(), indices.end(), size_t{0});
    for (size_t& index : indices) index %= images_.size();
    std::pmr::memory_resource* memory = host_memory(engine_);
    Loader loader(images_, indices, transform_, {.batch_size = options_.batch, .workers = threads_, .memory = memory});
    ThreadPool pool(threads_);
    std::vector<size_t> found(batch_size);
    Batch current(memory), next(memory);
    if (!loader.next(current)) return;
    program_->submit(current.images.data(), current.size);
    Clock::time_point start;
    size_t done = 0;
    for (bool more = true; more; std::swap(current, next)) {
      more = loader.next(next);
      if (more) program_->submit(next.images.data(), next.size);
      program_->collect(outputs.memory());
      pool.run(current.size, [&](int i, int) {
        found[static_cast<size_t>(i)] = boxes_of(outputs, i, current.sizes[static_cast<size_t>(i)]).size();
      });
      if (++done == kWarmUp) start = Clock::now();
    }
    const double images = static_cast<double>((done - kWarmUp) * batch_size);
    result["batches"] = done - kWarmUp;
    result["images_per_second"] = images / seconds_since(start);
    result["waited_seconds"] = loader.waited_seconds();
  }

  const Options options_;
  const int threads_;
  const Int8Graph graph_;
  const Engine& engine_;
  const std::unique_ptr<Program> program_;
  const ImageList images_;
  const Transform transform_;
  BoxDecoder decoder_;
  BoxOptions boxes_;
};

int main(int argc, char** argv) {
  CLI::App app("Times an int8 detector from image files to boxes; prints one JSON object.");
  Options options;
  app.add_option("CHECKPOINT", options.checkpoint, "int8.safetensors of a detector")->required();
  app.add_option("IMAGES", options.images, "files, folders or patterns")->required();
  app.add_option("--engine", options.engine, "cuda, cpu");
  app.add_option("--batch", options.batch, "of the second figure")->check(CLI::Range(1, 4096));
  app.add_option("--threads", options.threads, "0: all cores")->check(CLI::Range(0, 1024));
  app.add_option("--seconds", options.seconds, "of each figure")->check(CLI::Range(0.01, 600.0));
  app.add_option("--score", options.score, "boxes of a lower score are left out; 0: the checkpoint's");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  try {
    std::printf("%s\n", Bench(options).run().dump().c_str());
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "boxes_bench: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}

}  // namespace
}  // namespace octet

int main(int argc, char** argv) { return octet::main(argc, argv); }
