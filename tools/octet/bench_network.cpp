// octet bench of whole networks on random pictures; a checkpoint's, or one of the zoo with random weights. What one
// engine or batch cannot do is said in its place and does not stop the others.
#include "src/bench/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <optional>

#include "src/graph/checkpoint.h"
#include "src/graph/zoo.h"
#include "src/quant/convert.h"
#include "src/recipe/fallback.h"
#include "tools/octet/bench_options.h"
#include "tools/octet/bench_results.h"
#include "tools/octet/engine_flags.h"
#include "tools/octet/target.h"

namespace octet::cli {
namespace {

CompileOptions options_of(const BenchCommand& command, const std::string& engine, int batch) {
  CompileOptions compile;
  compile.max_batch = batch;
  compile.threads = command.threads;
  compile.kernels = engine == "cpu" || engine == "cuda" ? command.kernels : "auto";
  compile.fallback = partial_engine({engine}) == engine ? command.fallback : "none";
  return compile;
}

/// Why the engine cannot run the network here, or nothing.
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

/// One network a size; without --activation, of codes that every engine takes which could run one at all.
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
  for (const std::string& engine : engines) find_engine(engine);  // a misspelt one, before minutes of measuring
  check_fallback("bench: ", command.fallback, engines);
  check_kernels("bench: ", command.kernels, engines);
  if (!command.save.empty() && command.sizes.size() > 1)
    throw usage_error("bench: --save writes one network; give one --size");
  const std::vector<Int8Graph> graphs = networks(common, command, engines);
  const Int8Graph& first = graphs.front();
  if (!command.save.empty()) write_checkpoint(command.save, first);
  if (const auto why = refusal(common, command, engines.front(), first); why && engines.size() == 1) throw Error(*why);

  BenchResults results(common, command, first);
  results.say(fmt::format("{} on {}, random pictures{}", first.name, results.machine,
                          command.model.empty() ? "" : " and weights"));
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
