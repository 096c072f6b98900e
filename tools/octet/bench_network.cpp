// SPDX-License-Identifier: Apache-2.0
// octet bench of whole networks on random images: a checkpoint, or networks of the zoo with random weights. What one
// engine or batch size cannot do is reported and does not stop the others.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/cpu.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/base/threads.h"
#include "src/bench/bench.h"
#include "src/engine/engine.h"
#include "src/net/checkpoint.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "src/recipe/recipe.h"
#include "tools/octet/bench.h"
#include "tools/octet/measured_run.h"
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
          {"compile_seconds", result.compile_seconds},
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

LayerSeries series_of(const std::string& engine, size_t index, const BenchResult& result) {
  LayerSeries series{engine, series_colour(index), {}, {}};
  for (const LayerTime& layer : result.layers) {
    series.milliseconds.push_back(layer.milliseconds);
    series.notes.push_back(layer.kernel);
  }
  return series;
}

/// What was measured: printed line by line while it goes on, at the end as the document of --json and the file of
/// --svg.
class BenchResults {
 public:
  /// The arguments must outlive it; `first` is the network of the first size.
  BenchResults(const Common& common, const BenchCommand& command, const Int8Graph& first, std::string cpu_kernels)
      : common_(common), command_(command), first_(first), cpu_kernels_(std::move(cpu_kernels)) {}

  /// Prints a line at once, unless --json's document is to come.
  void say(const std::string& text) const;

  /// Prints what whoever is sent the times must know of them.
  void say_what_is_measured() const;

  /// Prints and keeps a measurement. `at` is what the line says after the engine's name.
  void add(const std::string& engine, const std::string& at, int size, const BenchResult& result);
  /// Prints and keeps what could not be measured.
  void add_refusal(const std::string& engine, const std::string& at, int size, std::optional<int> batch,
                   const Error& why);

  /// Prints --json's document and writes --svg's file; `interrupted` says that measurements are missing.
  void finish(bool interrupted) const;

  /// Whether --svg draws the layers of the first measurement (with --layers, or if there is only one), not curves over
  /// batches or sizes.
  bool draws_layers() const;

  const std::string machine = machine_model();
  const std::optional<ChipRates> rates = chip_rates();
  std::optional<Error> failed;  ///< the first refusal

 private:
  std::string svg() const;

  const Common& common_;
  const BenchCommand& command_;
  const Int8Graph& first_;
  std::string cpu_kernels_;  ///< of engine cpu; "" if it is not measured
  nlohmann::json json_ = nlohmann::json::array();
  std::vector<LayerSeries> series_;  ///< layers' times at the first batch and size
  std::vector<SweepPoint> points_;
};

void BenchResults::say(const std::string& text) const {
  if (!common_.json) print_result(common_, text, nullptr);
}

void BenchResults::say_what_is_measured() const {
  say(fmt::format("{} on {}, random images{}", first_.name, machine, command_.model.empty() ? "" : " and weights"));
  say(fmt::format("octet {}, {}{}", OCTET_VERSION, counted(command_.threads, "thread"),
                  cpu_kernels_.empty() ? "" : ", cpu kernels " + cpu_kernels_));
}

void BenchResults::add(const std::string& engine, const std::string& at, int size, const BenchResult& result) {
  say(fmt::format("{}{}: {}", engine, at, describe(result)));
  json_.push_back(to_json(engine, size, result));
  points_.push_back({engine, command_.sizes.size() > 1 ? size : 0, command_.batches.size() > 1 ? result.batch : 0,
                     result.images_per_second});
  if (!result.layers.empty() && size == first_.input_shape().h && result.batch == command_.batches.front())
    series_.push_back(series_of(engine, series_.size(), result));
}

void BenchResults::add_refusal(const std::string& engine, const std::string& at, int size, std::optional<int> batch,
                               const Error& why) {
  say(fmt::format("{}{}: not measured: {}", engine, at, why.what()));
  json_.push_back({{"engine", engine}, {"size", size}, {"not_measured", why.what()}});
  if (batch) json_.back()["batch"] = *batch;
  if (!failed) failed = why;
}

void BenchResults::finish(bool interrupted) const {
  if (common_.json) {
    print_result(common_, "", [&] {
      return nlohmann::json{{"version", OCTET_VERSION},
                            {"network", first_.name},
                            {"machine", machine},
                            {"cpu_kernels", cpu_kernels_},
                            {"threads", command_.threads},
                            {"interrupted", interrupted},
                            {"results", json_}}
          .dump(2);
    });
  }
  if (!command_.svg.empty() && !points_.empty()) write_file_atomically(command_.svg, svg());
}

bool BenchResults::draws_layers() const {
  return !command_.svg.empty() && (command_.layers || command_.batches.size() * command_.sizes.size() == 1);
}

std::string BenchResults::svg() const {
  const std::string title = first_.name + " on " + machine;
  if (!draws_layers()) return svg_sweep(title, points_);
  std::vector<std::string> layers;
  for (const Int8Node& node : first_.nodes) layers.push_back(node.name);
  return svg_layer_bars(fmt::format("{}, batch {}", title, command_.batches.front()), layers, series_);
}

CompileOptions options_of(const BenchCommand& command, const std::string& engine, int batch) {
  CompileOptions compile;
  compile.max_batch = batch;
  compile.threads = command.threads;
  compile.kernels = engine == "cpu" || engine == "cuda" ? command.kernels : "auto";
  compile.fallback = partial_engine({engine}) == engine ? command.fallback : "none";
  return compile;
}

/// Returns why the engine cannot run the network here, or nothing.
std::optional<Error> refusal(const Common& common, const BenchCommand& command, const std::string& engine,
                             const Int8Graph& graph) {
  try {
    if (const Support here = usable(find_engine(engine), devices(common)); !here.ok)
      return usage_error(here.reason + "; --engine auto takes what can");
    find_engine(engine).check(graph, options_of(command, engine, command.batches.front()));
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// Returns one network for each size. Without --activation its codes are affine_u8, or symmetric_s8 if more of the
/// engines can run it then.
std::vector<Int8Graph> networks(const Common& common, const BenchCommand& command,
                                const std::vector<std::string>& engines) {
  if (command.model.empty()) return {open_checkpoint(command.checkpoint).graph};
  const auto of = [&](const std::string& activation) {
    std::vector<Int8Graph> graphs;
    for (const int size : command.sizes)
      graphs.push_back(random_network(command.model, size, activation, command.sparsity));
    return graphs;
  };
  if (!command.activation.empty()) return of(command.activation);
  std::vector<Int8Graph> affine = of("affine_u8");
  const auto refused = [&](const Int8Graph& graph) {
    return std::count_if(engines.begin(), engines.end(),
                         [&](const std::string& engine) { return refusal(common, command, engine, graph); });
  };
  const auto of_affine = refused(affine.front());
  if (of_affine == 0) return affine;
  std::vector<Int8Graph> symmetric = of("symmetric_s8");
  if (refused(symmetric.front()) == of_affine) return affine;
  for (Int8Graph& graph : symmetric) graph.name += ", symmetric_s8 codes (not every engine named takes affine_u8)";
  return symmetric;
}

/// Returns the path that engine cpu takes, or nothing if it is not measured.
std::string cpu_kernels(const BenchCommand& command, const std::vector<std::string>& engines) {
  if (!std::count(engines.begin(), engines.end(), "cpu")) return "";
  return command.kernels == "auto" ? std::string(kernels::cpu_isa_name(kernels::best_cpu_isa())) : command.kernels;
}

/// Times one engine on one network at all batch sizes.
void measure(const Common& common, const BenchCommand& command, const Int8Graph& graph, const std::string& engine,
             BenchResults& results) {
  const int size = graph.input_shape().h;
  const std::string of_size = command.sizes.size() > 1 ? fmt::format(", {}x{}", size, graph.input_shape().w) : "";
  const CompileOptions first = options_of(command, engine, command.batches.front());
  const std::string at = of_size + (first.fallback == "none" ? "" : ", other nodes on " + first.fallback);
  if (const std::optional<Error> why = refusal(common, command, engine, graph))
    return results.add_refusal(engine, at, size, std::nullopt, *why);
  for (const int batch : command.batches) {
    try {
      const auto start = std::chrono::steady_clock::now();
      const std::unique_ptr<Program> program = find_engine(engine).compile(graph, options_of(command, engine, batch));
      const std::chrono::duration<double> compiled = std::chrono::steady_clock::now() - start;
      BenchResult result = bench_program(
          *program, graph, {batch, command.seconds, command.layers || results.draws_layers(), results.rates});
      result.compile_seconds = compiled.count();
      results.add(engine, at, size, result);
    } catch (const Error& error) {
      if (error.code() == ExitCode::interrupted) throw;
      results.add_refusal(engine, fmt::format("{}, batch {}", at, batch), size, batch, error);
    } catch (const std::bad_alloc&) {
      results.add_refusal(engine, fmt::format("{}, batch {}", at, batch), size, batch,
                          data_error("this machine has not enough memory for so many images"));
    }
  }
}

template <typename Value>
void leave_out_twice_named(std::vector<Value>& values) {
  for (auto value = values.begin(); value != values.end(); ++value)
    values.erase(std::remove(value + 1, values.end(), *value), values.end());
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

ExitCode bench_network(const Common& common, BenchCommand command) {
  leave_out_twice_named(command.batches);
  leave_out_twice_named(command.sizes);
  leave_out_twice_named(command.engines);
  std::vector<std::string> engines = command.engines;
  if (engines.empty()) engines = {std::string(preferred_engine(devices(common)).name())};
  if (std::count(engines.begin(), engines.end(), "auto")) engines = resolve_engines(engines, devices(common));
  if (command.fallback.empty()) command.fallback = partial_engine(engines).empty() ? "none" : "cuda";
  for (const std::string& engine : engines)
    find_engine(engine);  // a misspelt name is refused before minutes of measuring
  check_fallback("bench: ", command.fallback, engines);
  check_kernels("bench: ", command.kernels, engines);
  if (!command.save.empty() && command.sizes.size() > 1)
    throw usage_error("bench: --save writes one network; give one --size");
  const std::vector<Int8Graph> graphs = networks(common, command, engines);
  const Int8Graph& first = graphs.front();
  if (!command.save.empty()) write_checkpoint(command.save, first);
  if (const auto why = refusal(common, command, engines.front(), first); why && engines.size() == 1) throw Error(*why);

  command.threads = command.threads > 0 ? command.threads : usable_cores();
  BenchResults results(common, command, first, cpu_kernels(command, engines));
  results.say_what_is_measured();
  try {
    for (const std::string& engine : engines)
      for (const Int8Graph& graph : graphs) measure(common, command, graph, engine, results);
  } catch (const Error& error) {
    if (error.code() == ExitCode::interrupted) results.finish(true);  // minutes of measuring are not lost
    throw;
  }
  results.finish(false);
  if (results.failed)
    throw Error(results.failed->code(), fmt::format("bench: not all was measured: {}", results.failed->what()));
  return ExitCode::ok;
}

}  // namespace octet::cli
