// octet bench: times whole networks on random pictures; a checkpoint's, or one of the zoo with random weights. With
// --layers-of, single convolutions (bench_layers.cpp).
#include "src/bench/network.h"

#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/bench/layer_bars.h"
#include "src/bench/sweep.h"
#include "src/common/files.h"
#include "src/engine/engine.h"
#include "src/engine/machine.h"
#include "src/graph/checkpoint.h"
#include "src/graph/zoo.h"
#include "src/quant/convert.h"
#include "src/recipe/fallback.h"
#include "tools/octet/bench_options.h"
#include "tools/octet/commands.h"
#include "tools/octet/engine_flags.h"
#include "tools/octet/target.h"

namespace octet::cli {
namespace {

nlohmann::json to_json(const std::string& engine, int size, const BenchResult& result) {
  nlohmann::json layers = nlohmann::json::array();
  for (const LayerTime& layer : result.layers) {
    layers.push_back({{"name", layer.name},
                      {"engine", layer.engine.empty() ? engine : layer.engine},
                      {"kernel", layer.kernel},
                      {"milliseconds", layer.milliseconds},
                      {"multiply_adds", layer.multiply_adds},
                      {"bytes", layer.bytes},
                      {"floor_ms", layer.floor_ms}});
  }
  return {{"engine", engine},
          {"size", size},
          {"batch", result.batch},
          {"runs", result.runs},
          {"median_ms", result.median_ms},
          {"p99_ms", result.p99_ms},
          {"images_per_second", result.images_per_second},
          {"device_ms", result.device_ms},
          {"device_p99_ms", result.device_p99_ms},
          {"overlapped_images_per_second", result.overlapped_images_per_second},
          {"gpu_joules_per_image", result.gpu_joules},
          {"gpu_watts", result.gpu_watts},
          {"cpu_joules_per_image", result.cpu_joules},
          {"multiply_adds", result.multiply_adds},
          {"layers", layers}};
}

/// Bars by layer: a series each engine, at the first batch.
std::string to_svg(const Int8Graph& graph, const std::vector<LayerSeries>& series, int batch) {
  std::vector<std::string> layers;
  for (const Int8Node& node : graph.nodes) layers.push_back(node.name);
  return svg_layer_bars(fmt::format("{}, batch {}", graph.name, batch), layers, series);
}

LayerSeries series_of(const std::string& engine, size_t index, const BenchResult& result) {
  LayerSeries series{engine, series_colour(index), {}, {}};
  for (const LayerTime& layer : result.layers) {
    series.milliseconds.push_back(layer.milliseconds);
    series.notes.push_back(layer.kernel);
  }
  return series;
}

/// A flag that would change nothing is refused; those that depend on the kind of bench are in add_bench().
void require_use(const BenchCommand& command, const std::vector<std::string>& engines) {
  check_fallback("bench: ", command.fallback, engines);
  check_kernels("bench: ", command.kernels, engines);
}

/// What the measurements of all sizes, engines and batches add up to.
struct Results {
  const std::string machine = machine_model();
  const std::optional<ChipRates> rates = chip_rates(machine);
  std::string text;
  nlohmann::json json = nlohmann::json::array();
  std::vector<LayerSeries> series;  ///< at the first batch and size
  std::vector<SweepPoint> points;
};

/// Several batches or sizes are drawn as curves, one as its layers.
bool draws_layers(const BenchCommand& command) {
  return !command.svg.empty() && (command.layers || command.batches.size() * command.sizes.size() == 1);
}

void measure(const BenchCommand& command, const Int8Graph& graph, const std::string& engine, bool first_size,
             Results& results) {
  const bool layers = command.layers || draws_layers(command);
  const int size = graph.input_shape().h;
  for (const int batch : command.batches) {
    CompileOptions compile;
    compile.max_batch = batch;
    compile.threads = command.threads;
    compile.kernels = engine == "cpu" || engine == "cuda" ? command.kernels : "auto";
    compile.fallback = partial_engine({engine}) == engine ? command.fallback : "none";
    const std::unique_ptr<Program> program = find_engine(engine).compile(graph, compile);
    const BenchResult result = bench_program(*program, graph, {batch, command.seconds, layers, results.rates});
    const std::string at = command.sizes.size() > 1 ? fmt::format(", {}x{}", size, graph.input_shape().w) : "";
    results.text += fmt::format("{}{}: {}\n", engine, at, describe(result));
    results.json.push_back(to_json(engine, size, result));
    results.points.push_back({engine, size, batch, result.images_per_second});
    if (layers && first_size && batch == command.batches.front())
      results.series.push_back(series_of(engine, results.series.size(), result));
  }
}

ExitCode bench_network(const Common& common, const BenchCommand& command) {
  const std::vector<std::string> engines = command.engines.empty()
                                               ? std::vector{std::string(preferred_engine(devices(common)).name())}
                                               : resolve_engines(command.engines, devices(common));
  require_use(command, engines);
  if (!command.save.empty() && command.sizes.size() > 1)
    throw usage_error("bench: --save writes one network; give one --size");
  std::vector<Int8Graph> graphs;
  for (const int size : command.sizes)
    graphs.push_back(command.model.empty() ? open_checkpoint(command.checkpoint).graph
                                           : random_network(command.model, size, command.activation, command.sparsity));
  const Int8Graph& first = graphs.front();
  if (!command.save.empty()) write_checkpoint(command.save, first);
  Results results;
  results.text = fmt::format("{} on {}, random pictures{}\n", first.name, results.machine,
                             command.model.empty() ? "" : " and weights");
  for (const std::string& engine : engines)
    for (const Int8Graph& graph : graphs) measure(command, graph, engine, &graph == &first, results);
  if (!command.svg.empty()) {
    write_file_atomically(command.svg, draws_layers(command)
                                           ? to_svg(first, results.series, command.batches.front())
                                           : svg_sweep(first.name + " on " + results.machine, results.points));
  }
  print_result(common, results.text, [&] {
    return nlohmann::json{
        {"network", first.name}, {"machine", results.machine}, {"threads", command.threads}, {"results", results.json}}
        .dump(2);
  });
  return ExitCode::ok;
}

ExitCode bench(const Common& common, const BenchCommand& command) {
  const int given = !command.checkpoint.empty() + !command.model.empty() + !command.layers_of.empty();
  if (given != 1) throw usage_error("bench needs one of CHECKPOINT, --model NAME and --layers-of NAME");
  if (command.layers_of.empty()) return bench_network(common, command);
  if (command.sizes.size() > 1) throw usage_error("bench: --layers-of measures at one --size");
  return bench_layers(common, command);
}

}  // namespace

Int8Graph random_network(const std::string& model, int size, const std::string& activation,
                         const std::string& sparsity) {
  ModelSpec spec;
  spec.name = model;
  spec.input = {3, size, size};
  spec.classes = size < 64 ? 10 : 1000;
  QuantSpec quant;
  quant.activation = value_named(kActivationSchemes, activation, "--activation");
  quant.sparsity = value_named(kSparsities, sparsity, "--sparsity");
  Int8Graph graph = random_int8_graph(build_model(spec), quant, 1);
  if (quant.sparsity != Sparsity::none) graph.name += ", " + sparsity;  // whoever reads a time must know
  return graph;
}

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
  command->add_option("--activation", options->activation, "codes of --model's activations")
      ->excludes(checkpoint)
      ->check(CLI::IsMember(std::vector<std::string>(schemes.begin(), schemes.end())))
      ->capture_default_str();
  const std::vector<std::string_view> sparsities = names_in(kSparsities);
  command->add_option("--sparsity", options->sparsity, "of the random weights of --model and --layers-of")
      ->excludes(checkpoint)
      ->check(CLI::IsMember(std::vector<std::string>(sparsities.begin(), sparsities.end())))
      ->capture_default_str();
  command->add_option("--batch", options->batches, "batch sizes: 1,8")->delimiter(',')->check(CLI::Range(1, 4096));
  command->add_option("--engine", options->engines, "cuda, cudnn, cutlass, cpu, reference")->delimiter(',');
  add_fallback(*command, options->fallback);
  command->add_option("--kernels", options->kernels,
                      "cpu: auto, avx512_vnni, avx2, portable; cuda: auto, separate, fused or part of the names of the "
                      "only ones allowed");
  command->add_option("--threads", options->threads, "0: all cores")->check(CLI::Range(0, 1024));
  command->add_option("--seconds", options->seconds, "of measuring, each")->check(CLI::Range(0.01, 600.0));
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
