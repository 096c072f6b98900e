// SPDX-License-Identifier: Apache-2.0
// train_bench: median time and peak memory of octet's own training step on the GPU, as one JSON object.
// tools/lab/bench/training.sh and detector_gpu.py run it beside PyTorch. With RANK, WORLD_SIZE and so on in the
// environment it is one of several processes that train together, a GPU each; the first prints.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/base/error.h"
#include "src/base/names.h"
#include "src/base/progress.h"
#include "tools/lab/bench/time_step.h"
#include "trainers/gpu.h"
#include "trainers/run/stage_plan.h"

namespace octet {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

struct Options {
  std::string phase = "qat", precision = "fp16", exchange = "fp32", forward = "simulation", scales = "fixed";
  int size = 224, classes = 0, propose = 0;
  bool eager = false;
};

/// Before anything asks for a GPU: each process sees its own alone.
std::optional<RankEnvironment> take_own_gpu() {
  const std::optional<RankEnvironment> environment = read_rank_environment();
  if (environment)
    ::setenv("CUDA_VISIBLE_DEVICES", own_gpu(*environment, from_process("CUDA_VISIBLE_DEVICES")).c_str(), 1);
  return environment;
}

std::vector<std::string> named_precisions() {
  const std::vector<std::string_view> names = names_in(kPrecisions);
  return {names.begin(), names.end()};
}

std::vector<std::string> named_scales() {
  const std::vector<std::string_view> names = names_in(kEdgeScales);
  return {names.begin(), names.end()};
}

/// Where to cut the network for so many processes.
std::string propose(const StepBench& bench, const Options& options) {
  Run run;
  run.device = choose_device(bench.device);
  run.graph = build_model(bench.model);
  run.recipe.quant = bench.quant;
  set_switches(run.device, bench.cuda);
  const int micro_batches = bench.parallel.micro_batches;
  const std::vector<PartCost> parts =
      measure_parts(run, bench.optimizer, micro_batches, options.phase == "qat", bench.cuda.graph);
  const StagePlan plan = plan_stages(parts, options.propose, micro_batches);
  nlohmann::json stages = nlohmann::json::array();
  for (const PartCost& stage : plan.stages)
    stages.push_back({{"last", stage.last}, {"ms", stage.milliseconds}, {"holds_gib", stage.kept_bytes / kGiB}});
  nlohmann::json costs = nlohmann::json::array();
  for (const PartCost& part : parts) costs.push_back({part.last, part.milliseconds});
  return nlohmann::json{
      {"costs", costs}, {"stages", plan.layers}, {"parts", parts.size()}, {"speed_up", plan.speed_up}, {"of", stages}}
      .dump();
}

std::string run(StepBench bench, const Options& options) {
  bench.model.input = {3, options.size, options.size};
  bench.model.classes = options.classes > 0 ? options.classes : options.size < 64 ? 10 : 1000;
  bench.qat = options.phase == "qat";
  bench.forward = value_named(kQatForwards, options.forward, "--forward");
  bench.quant.scales = value_named(kEdgeScales, options.scales, "--scales");
  bench.cuda.graph = !options.eager && !bench.profile && bench.device == "cuda";
  if (options.propose > 0) return propose(bench, options);
  const StepTimes times = time_training_step(bench);
  if (!std::isfinite(times.loss)) throw promise_error("the loss is not a number: what was timed does not train");
  const int ranks = bench.ranks == nullptr ? 1 : bench.ranks->size();
  const bool staged = !bench.parallel.stages.empty();
  // Processes that each take a batch of their own: all of them, or the replicas of a network that is cut into stages.
  const int shares = staged ? std::max(1, ranks / static_cast<int>(bench.parallel.stages.size() + 1)) : ranks;
  const auto& ms = times.milliseconds;
  const double median = ms[ms.size() / 2];
  nlohmann::json result{{"program", "octet"},
                        {"peer", fmt::format("{} {}", options.phase, name_in(kPrecisions, bench.optimizer.precision))},
                        {"batch_norm_frozen", bench.freeze_batch_norm},
                        {"forward", options.forward},
                        {"recompute", bench.recompute},
                        {"scales", options.scales},
                        {"model", bench.model.name},
                        {"ranks", ranks},
                        {"batch", bench.optimizer.batch_size},
                        {"size", options.size},
                        {"gpu", device_name(choose_device(bench.device))},
                        {"graph", bench.cuda.graph},
                        {"runs", ms.size()},
                        {"median_ms", median},
                        {"p10_ms", ms[ms.size() / 10]},
                        {"p90_ms", ms[ms.size() * 9 / 10]},
                        {"images_per_second", 1e3 * bench.optimizer.batch_size * shares / median},
                        {"peak_gib", static_cast<double>(times.peak_bytes) / kGiB},
                        {"used_gib", static_cast<double>(times.used_bytes) / kGiB},
                        {"loss", times.loss}};
  if (bench.ranks != nullptr) {
    if (staged) {
      result["stages"] = bench.parallel.stages;
      result["replicas"] = shares;
      result["micro_batches"] = bench.parallel.micro_batches;
    } else {
      result["exchange_ms"] = times.exchange_milliseconds;
      result["gradient_bytes"] = times.gradient_bytes;
      result["exchange"] = name_in(kExchangeTypes, bench.parallel.exchange);
      result["sync_batch_norm"] = bench.optimizer.sync_batch_norm;
    }
    std::vector<double> peaks(static_cast<size_t>(ranks), 0);
    peaks[static_cast<size_t>(bench.ranks->rank())] = static_cast<double>(times.peak_bytes) / kGiB;
    result["peak_gib_by_rank"] = bench.ranks->sum(peaks);
    result["waiting_ms"] = times.waiting_milliseconds;
  }
  return result.dump();
}

int main(int argc, char** argv) {
  CLI::App app("Times octet's training step on random images on the GPU; prints one JSON object.");
  StepBench bench;
  Options options;
  bench.optimizer.batch_size = 256;
  bench.optimizer.learning_rate = 0.01;
  app.add_option("--model", bench.model.name, "a network of the zoo")->required();
  app.add_option("--phase", options.phase, "float or qat")->check(CLI::IsMember({"float", "qat"}));
  app.add_option("--precision", options.precision)->check(CLI::IsMember(named_precisions()));
  app.add_option("--batch", bench.optimizer.batch_size, "of this process")->check(CLI::Range(1, 65536));
  app.add_option("--size", options.size, "input height and width")->check(CLI::Range(8, 1024));
  app.add_option("--classes", options.classes, "(default: 1000; 10 of images below 64 pixels)")
      ->check(CLI::Range(1, 100000));
  app.add_option("--boxes", bench.boxes, "of each image, for a detector")->check(CLI::Range(1, 120));
  app.add_option("--rate", bench.optimizer.learning_rate, "learning rate")->check(CLI::PositiveNumber);
  app.add_option("--ema", bench.optimizer.ema, "decay of the weights' moving average; 0: none")
      ->check(CLI::Range(0.0, 0.999999));
  app.add_option("--device", bench.device, "cuda, or cpu to see that a step runs")
      ->check(CLI::IsMember({"cuda", "cpu"}));
  app.add_option("--seconds", bench.seconds, "of measuring")->check(CLI::Range(0.01, 600.0));
  app.add_flag("--freeze-batch-norm", bench.freeze_batch_norm, "qat: BatchNorm's statistics stay from the first step");
  app.add_option("--forward", options.forward, "qat with frozen BatchNorm: simulation, or int8: on codes")
      ->check(CLI::IsMember({"simulation", "int8"}));
  app.add_flag("--recompute", bench.recompute, "qat: as the recipe's qat.recompute: less memory, slower");
  app.add_option("--scales", options.scales, "qat: fixed, observed, lsq, lsq_plus: what becomes of calibrated ranges")
      ->check(CLI::IsMember(named_scales()));
  app.add_flag("--sync-batch-norm", bench.optimizer.sync_batch_norm,
               "several processes: BatchNorm of all their images");
  app.add_option("--stages", bench.parallel.stages, "layers after which the network is cut, a process a part");
  app.add_option("--micro-batches", bench.parallel.micro_batches, "with --stages: parts of a batch")
      ->check(CLI::Range(1, 1024));
  app.add_option("--propose", options.propose, "measures where to cut the network for so many processes, and ends")
      ->check(CLI::Range(2, 64));
  app.add_option("--exchange", options.exchange, "several processes: type of the gradients they sum")
      ->check(CLI::IsMember({"fp32", "fp16"}));
  app.add_flag("--profile", bench.profile, "under ncu --profile-from-start off: one step for step_table.py");
  app.add_flag("--eager", options.eager, "launch every kernel, instead of replaying a CUDA graph");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  install_interrupt_handler();
  try {
    if (bench.freeze_batch_norm && options.phase != "qat")
      throw usage_error("--freeze-batch-norm: with --phase qat only");
    bench.optimizer.precision = value_named(kPrecisions, options.precision, "--precision");
    bench.parallel.exchange = value_named(kExchangeTypes, options.exchange, "--exchange");
    if (bench.profile && bench.device == "cpu") throw usage_error("--profile: of a GPU, without --device cpu");
    const std::optional<RankEnvironment> environment = take_own_gpu();
    const at::Device device = choose_device(bench.device);
    std::unique_ptr<Ranks> ranks;
    if (environment) ranks = std::make_unique<Ranks>(*environment, device, "train_bench");
    bench.ranks = ranks.get();
    const std::string result = run(bench, options);
    if (ranks) ranks->leave();
    if (!ranks || ranks->first()) std::printf("%s\n", result.c_str());
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "train_bench: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {  // LibTorch's messages go on for pages
    const std::string text = error.what();
    std::fprintf(stderr, "train_bench: %s\n", text.substr(0, text.find('\n')).c_str());
    return static_cast<int>(ExitCode::promise);
  }
}

}  // namespace
}  // namespace octet

int main(int argc, char** argv) { return octet::main(argc, argv); }
