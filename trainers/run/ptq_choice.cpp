#include "trainers/run/ptq_choice.h"

#include <fmt/core.h>

#include <optional>

#include "src/common/error.h"
#include "src/common/progress.h"
#include "trainers/run/measure.h"

namespace octet {
namespace {

std::string name_of(const Run& run) { return run.recipe.quant.activation + " " + run.recipe.calibrate.method; }

template <typename Table>
std::vector<std::string> all_of(const Table& table) {
  const std::vector<std::string_view> names = names_in(table);
  return {names.begin(), names.end()};
}

}  // namespace

QuantizedModel calibrated(const Run& run, Weights weights) {
  for (auto& [name, tensor] : weights) tensor = tensor.detach().clone();
  QuantizedModel model = make_quantized(run, weights);
  calibrate(model, run);
  return model;
}

Int8Graph quantize_trained(const Run& run, const Weights& weights) { return to_int8(run, calibrated(run, weights)); }

bool PtqResult::better_than(const PtqResult& other) const {
  if (!refused.empty() || !other.refused.empty()) return refused.empty();
  return score != other.score ? score > other.score : loss < other.loss;
}

PtqChoice choose_ptq(Run run, const Weights& weights, bool all, const CompileInt8& compile) {
  std::vector<std::string> activations = {run.recipe.quant.activation}, methods = {run.recipe.calibrate.method};
  if (all) {
    activations = all_of(kActivationSchemes);
    methods = all_of(kCalibrationMethods);
  }
  PtqChoice choice;
  const std::unique_ptr<Program> network = float_program(run.graph, weights, run.preprocessing);
  choice.float_validation = measure(run, "float", *network, run.data.validation_images()).evaluation.score();
  std::optional<Error> refusal;
  for (const std::string& activation : activations) {
    for (const std::string& method : methods) {
      run.recipe.quant.activation = activation;
      run.recipe.calibrate.method = method;
      PtqResult result{.activation = activation, .method = method};
      Int8Graph graph = quantize_trained(run, weights);
      std::unique_ptr<Program> program;
      try {
        program = compile(run, graph);
      } catch (const Error& error) {
        if (error.code() != ExitCode::promise) throw;
        refusal = error;
        result.refused = error.what();
        say(fmt::format("{}: {}", name_of(run), error.what()));
      }
      if (program) {
        const Evaluation e = measure(run, name_of(run), *program, run.data.validation_images()).evaluation;
        result.score = e.score();
        result.loss = e.loss;
      }
      choice.results.push_back(result);
      const bool first = choice.results.size() == 1;
      if (!first && !result.better_than(choice.results[choice.chosen])) continue;
      choice.chosen = choice.results.size() - 1;
      choice.graph = std::move(graph);
    }
  }
  const PtqResult& chosen = choice.results[choice.chosen];
  if (!chosen.refused.empty()) throw Error(*refusal);

  // The test images, from here on: nothing is chosen any more.
  run.recipe.quant.activation = chosen.activation;
  run.recipe.calibrate.method = chosen.method;
  choice.float_test = measure(run, "float", *network, run.data.test_images()).evaluation;
  choice.int8_test = measure(run, name_of(run), *compile(run, choice.graph), run.data.test_images()).evaluation;
  const std::string key = score_names(run.data.task().labels).key;
  choice.graph.accuracies = {{"float_" + key, choice.float_test.score()}, {"int8_" + key, choice.int8_test.score()}};
  return choice;
}

}  // namespace octet
