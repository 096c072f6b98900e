// octet bench: times whole networks on random pictures; a checkpoint's, or one of the zoo with random weights.
#include "src/eval/bench.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "src/engine/engine.h"
#include "src/graph/checkpoint.h"
#include "src/graph/zoo.h"
#include "src/quant/convert.h"
#include "tools/octet/commands.h"
#include "tools/octet/machine.h"
#include "tools/octet/target.h"

namespace octet::cli {
namespace {

struct Options {
  std::string checkpoint, model, kernels = "auto", save;
  std::vector<std::string> engines;
  std::vector<int> batches = {1};
  int size = 224, threads = 0;
  double seconds = 3;
  bool layers = false;
};

Int8Graph random_network(const Options& options) {
  ModelSpec spec;
  spec.name = options.model;
  spec.input = {3, options.size, options.size};
  spec.classes = options.size < 64 ? 10 : 1000;
  return random_int8_graph(build_model(spec), QuantSpec{}, 1);
}

nlohmann::json to_json(const std::string& engine, const BenchResult& result) {
  nlohmann::json layers = nlohmann::json::array();
  for (const LayerTime& layer : result.layers) {
    layers.push_back({{"name", layer.name},
                      {"kernel", layer.kernel},
                      {"milliseconds", layer.milliseconds},
                      {"multiply_adds", layer.multiply_adds}});
  }
  return {{"engine", engine},
          {"batch", result.batch},
          {"runs", result.runs},
          {"median_ms", result.median_ms},
          {"p99_ms", result.p99_ms},
          {"images_per_second", result.images_per_second},
          {"multiply_adds", result.multiply_adds},
          {"layers", layers}};
}

ExitCode bench(const Common& common, const Options& options) {
  if (options.checkpoint.empty() == options.model.empty())
    throw usage_error("bench needs either a CHECKPOINT or --model NAME");
  const Int8Graph graph =
      options.model.empty() ? read_checkpoint(checkpoint_of(options.checkpoint)) : random_network(options);
  if (!options.save.empty()) write_checkpoint(options.save, graph);

  std::string text = fmt::format("{} on {}, random pictures{}\n", graph.name, machine_model(),
                                 options.model.empty() ? "" : " and weights");
  nlohmann::json results = nlohmann::json::array();
  const std::vector<std::string> engines = options.engines.empty()
                                               ? std::vector{std::string(preferred_engine(devices(common)).name())}
                                               : resolve_engines(options.engines, devices(common));
  for (const std::string& engine : engines) {
    for (int batch : options.batches) {
      CompileOptions compile;
      compile.max_batch = batch;
      compile.threads = options.threads;
      compile.kernels = engine == "cpu" ? options.kernels : "auto";
      const std::unique_ptr<Program> program = find_engine(engine).compile(graph, compile);
      const BenchResult result = bench_program(*program, graph, {batch, options.seconds, options.layers});
      text += fmt::format("{}: {}\n", engine, describe(result));
      results.push_back(to_json(engine, result));
    }
  }
  print_result(common, text, [&] {
    return nlohmann::json{
        {"network", graph.name}, {"machine", machine_model()}, {"threads", options.threads}, {"results", results}}
        .dump(2);
  });
  return ExitCode::ok;
}

}  // namespace

void add_bench(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("bench", "times whole networks on random pictures");
  command->add_option("CHECKPOINT", options->checkpoint, "an int8.safetensors or a run directory");
  command->add_option("--model", options->model, "a network of the zoo, random weights: resnet50, mobilenet_v2, ...");
  command->add_option("--size", options->size, "input height and width for --model")->check(CLI::Range(8, 1024));
  command->add_option("--batch", options->batches, "batch sizes: 1,8")->delimiter(',')->check(CLI::Range(1, 4096));
  command->add_option("--engine", options->engines, "cuda, cudnn, cpu, reference (default: the first that runs here)")
      ->delimiter(',');
  command->add_option("--kernels", options->kernels, "cpu engine: auto, avx512_vnni, avx2, portable");
  command->add_option("--threads", options->threads, "0: all cores")->check(CLI::Range(0, 1024));
  command->add_option("--seconds", options->seconds, "of measuring, each")->check(CLI::Range(0.01, 600.0));
  command->add_flag("--layers", options->layers, "time every layer too");
  command->add_option("--save", options->save, "write the random network to this .safetensors file");
  command->callback([&common, &action, options] { action = [&common, options] { return bench(common, *options); }; });
}

}  // namespace octet::cli
