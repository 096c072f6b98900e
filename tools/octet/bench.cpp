// SPDX-License-Identifier: Apache-2.0
// octet bench: its flags, and the timing of single convolutions (--layers-of). bench_network.cpp times whole networks.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "src/base/files.h"
#include "src/base/threads.h"
#include "src/bench/bench.h"
#include "src/engine/engine.h"
#include "tools/octet/bench.h"
#include "tools/octet/measured_run.h"
#include "tools/octet/target.h"

namespace octet::cli {
namespace {

nlohmann::json to_json(const ConvBench& bench) {
  nlohmann::json convs = nlohmann::json::array();
  for (const ConvRow& row : bench.convs) {
    nlohmann::json times;
    for (const Contestant who : bench.contestants) {
      const ConvolutionTime& time = row.times[who];
      times[kContestantNames[who]] = {{"milliseconds", time.milliseconds},
                                      {"bytes", row.bytes[who]},
                                      {"kernel", time.kernel},
                                      {"reason", time.reason}};
    }
    convs.push_back({{"convolution", row.conv.description},
                     {"count", row.conv.count},
                     {"multiply_adds", row.multiply_adds},
                     {"times", times}});
  }
  nlohmann::json weighted;
  for (const Contestant who : bench.contestants) weighted[kContestantNames[who]] = bench.weighted[who];
  return {{"network", bench.network}, {"machine", bench.machine},   {"batch", bench.batch},
          {"convolutions", convs},    {"compared", bench.compared}, {"weighted_ms", weighted}};
}

/// Draws the rows that can be compared. (A first layer that cuDNN int8 does not run can take more time than all
/// others.)
std::string to_svg(const ConvBench& bench) {
  std::vector<std::string> layers;
  std::vector<LayerSeries> series;
  for (const Contestant who : bench.contestants)
    series.push_back({kContestantNames[who], series_colour(series.size()), {}, {}});
  for (const ConvRow& row : bench.convs) {
    if (!all_ran(bench, row)) continue;
    layers.push_back(std::to_string(row.conv.count) + "x " + row.conv.description);
    for (size_t i = 0; i < series.size(); ++i) {
      const auto& time = row.times[bench.contestants[i]];
      series[i].milliseconds.push_back(time.milliseconds);
      series[i].notes.push_back(time.kernel);
    }
  }
  return svg_layer_bars(fmt::format("{} on {}, batch {}, {} of {} convolutions: those that all ran", bench.network,
                                    bench.machine, bench.batch, layers.size(), bench.convs.size()),
                        layers, series);
}

void require_gpu_engines(const Common& common) {
  if (common.device == "cpu") throw usage_error("bench: --layers-of measures on a GPU, --device cpu excludes it");
  for (const char* name : {"cuda", "cudnn"}) {
    if (const Support machine = find_engine(name).available(); !machine.ok)
      throw usage_error(fmt::format("bench: --layers-of measures engines cuda and cudnn, and {} cannot run here: {}",
                                    name, machine.reason));
  }
}

/// octet bench --layers-of: times every distinct convolution of a network on octet's CUDA kernels, cuDNN and CUTLASS.
ExitCode bench_layers(const Common& common, const BenchCommand& command) {
  const Int8Graph graph = random_network(command.layers_of, command.sizes.front(), "symmetric_s8", command.sparsity);
  require_gpu_engines(common);
  nlohmann::json results = nlohmann::json::array();
  for (const int batch : command.batches) {
    const ConvBench bench = bench_convolutions(graph, {.batch = batch});
    if (!common.json)  // at once, as each takes minutes
      print_result(common, (results.empty() ? "" : "\n") + describe(bench), nullptr);
    results.push_back(to_json(bench));
    if (!command.svg.empty() && batch == command.batches.front()) write_file_atomically(command.svg, to_svg(bench));
  }
  if (common.json) print_result(common, "", [&] { return results.dump(2); });
  return ExitCode::ok;
}

ExitCode bench(const Common& common, const BenchCommand& command) {
  const int given = !command.checkpoint.empty() + !command.model.empty() + !command.layers_of.empty();
  if (given != 1) throw usage_error("bench needs one of CHECKPOINT, --model NAME and --layers-of NAME");
  if (!command.svg.empty()) require_place_for(command.svg);
  if (command.layers_of.empty()) return bench_network(common, command);
  if (command.sizes.size() > 1) throw usage_error("bench: --layers-of measures at one --size");
  return bench_layers(common, command);
}

}  // namespace

void add_bench(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<BenchCommand>();
  CLI::App* command = app.add_subcommand("bench", "times whole networks, or single convolutions, on random data");
  CLI::Option* checkpoint = command->add_option("CHECKPOINT", options->checkpoint, checkpoint_help());
  command->add_option("--model", options->model, "a network of the zoo, random weights: resnet50, mobilenet_v2, ...");
  CLI::Option* layers_of = command->add_option(
      "--layers-of", options->layers_of,
      "every distinct convolution of a network of the zoo: cuda int8, cudnn int8, cudnn fp16, cutlass int8");
  command->add_option("--size", options->sizes, "input heights and widths for --model, one for --layers-of: 160,224")
      ->delimiter(',')
      ->check(CLI::Range(8, 1024))
      ->excludes(checkpoint);
  const std::vector<std::string_view> schemes = names_in(kActivationSchemes);
  command
      ->add_option(
          "--activation", options->activation,
          "codes of --model's activations (default: affine_u8, or symmetric_s8 where an engine takes no other)")
      ->excludes(checkpoint)
      ->check(CLI::IsMember(std::vector<std::string>(schemes.begin(), schemes.end())));
  const std::vector<std::string_view> sparsities = names_in(kSparsities);
  command->add_option("--sparsity", options->sparsity, "of the random weights of --model and --layers-of")
      ->excludes(checkpoint)
      ->check(CLI::IsMember(std::vector<std::string>(sparsities.begin(), sparsities.end())))
      ->capture_default_str();
  command->add_option("--batch", options->batches, "batch sizes: 1,8")->delimiter(',')->check(CLI::Range(1, 4096));
  command
      ->add_option("--engine", options->engines,
                   "cuda, cudnn, cutlass, cpu, reference; one that cannot run is told, the others are measured")
      ->delimiter(',');
  add_fallback(*command, options->fallback);
  command->add_option(
      "--kernels", options->kernels,
      "cpu: auto or a path that octet doctor lists; cuda: auto, separate, fused or part of the names of the "
      "only ones allowed");
  command->add_option("--threads", options->threads, "0: all cores")->check(CLI::Range(0, kMostThreads));
  command->add_option("--seconds", options->seconds, "of measuring, each; joules are told from 1 s on")
      ->check(CLI::Range(0.01, 600.0));
  command->add_flag("--layers", options->layers, "time every layer too");
  command->add_option(
      "--svg", options->svg,
      "draw images/s over several batches or sizes into this file; of one, or with --layers, its layers' times");
  command->add_option("--save", options->save, "write the random network to this .safetensors file")
      ->excludes(checkpoint);
  for (const char* name :
       {"--activation", "--engine", "--fallback", "--kernels", "--threads", "--seconds", "--layers", "--save"}) {
    layers_of->excludes(command->get_option(name));
  }
  command->callback([&common, &action, options] { action = [&common, options] { return bench(common, *options); }; });
}

}  // namespace octet::cli
