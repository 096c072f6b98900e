// octet calibrate RECIPE|RUN: post-training quantization of float weights, with one calibrator or with all of them.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "src/common/progress.h"
#include "src/engine/engine.h"
#include "src/eval/text_table.h"
#include "src/graph/checkpoint.h"
#include "tools/octet/commands.h"
#include "tools/octet/target.h"
#include "trainers/gpu.h"
#include "trainers/gpu_failure.h"
#include "trainers/pipeline.h"

namespace octet::cli {
namespace {

struct Options {
  std::string target;
  bool all = false;
};

struct Result {
  std::string activation, method;
  double top1 = 0, loss = 0;  ///< on the validation images

  bool better_than(const Result& other) const { return top1 != other.top1 ? top1 > other.top1 : loss < other.loss; }
};

/// What was tried, chosen on the validation images; the test images have seen the float network and the chosen one.
struct Outcome {
  double float_validation = 0;
  std::vector<Result> results;
  size_t chosen = 0;  ///< of results
  Int8Graph graph;    ///< the chosen one's
  Evaluation float_test, int8_test;
};

Evaluation measure_int8(const Run& run, const std::string& engine, const Int8Graph& graph,
                        const EvaluationSet& images) {
  const std::string name = fmt::format("{} {}", run.recipe.quant.activation, run.recipe.calibrate.method);
  return measure(run, name, *compile_engine(run, engine, graph), images).evaluation;
}

/// Calibrates with run.recipe and measures on `engine`.
void try_one(const Run& run, const std::string& engine, const Weights& weights, Outcome& outcome) {
  QuantizedModel model = make_quantized(run, weights);
  octet::calibrate(model, run);
  Int8Graph graph = to_int8(run, model);
  const Evaluation e = measure_int8(run, engine, graph, run.data.validation_images());
  outcome.results.push_back({run.recipe.quant.activation, run.recipe.calibrate.method, e.top1, e.loss});
  const bool first = outcome.results.size() == 1;
  if (!first && !outcome.results.back().better_than(outcome.results[outcome.chosen])) return;
  outcome.chosen = outcome.results.size() - 1;
  outcome.graph = std::move(graph);
}

/// `run` ends with the chosen scheme and calibrator.
Outcome choose(Run& run, const std::string& engine, const Weights& weights, bool all) {
  Outcome outcome;
  const std::unique_ptr<Program> network = float_program(run.graph, weights, run.preprocessing);
  outcome.float_validation = measure(run, "float", *network, run.data.validation_images()).evaluation.top1;
  std::vector<std::string> activations = {run.recipe.quant.activation}, methods = {run.recipe.calibrate.method};
  if (all) {
    activations = {"symmetric_s8", "unsigned_u8", "affine_u8"};
    methods = {"minmax", "percentile", "mse", "entropy"};
  }
  for (const std::string& activation : activations) {
    for (const std::string& method : methods) {
      run.recipe.quant.activation = activation;
      run.recipe.calibrate.method = method;
      try_one(run, engine, weights, outcome);
    }
  }
  run.recipe.quant.activation = outcome.results[outcome.chosen].activation;
  run.recipe.calibrate.method = outcome.results[outcome.chosen].method;
  outcome.float_test = measure(run, "float", *network, run.data.test_images()).evaluation;
  outcome.int8_test = measure_int8(run, engine, outcome.graph, run.data.test_images());
  outcome.graph.accuracies = {{"float_top1", outcome.float_test.top1}, {"int8_top1", outcome.int8_test.top1}};
  return outcome;
}

std::string text(const Run& run, const Outcome& outcome) {
  TextTable table({{"activation", Align::left}, {"calibrator", Align::left}, {"top-1"}, {"lost points"}});
  table.add_row({"float", "", percent(outcome.float_validation), ""});
  for (const Result& r : outcome.results) {
    table.add_row(
        {r.activation, r.method, percent(r.top1), fmt::format("{:.2f}", 100 * (outcome.float_validation - r.top1))});
  }
  return fmt::format("{}\n{}: chosen of {}. On {}, which nothing was chosen on: float {}, {} {} {}\n", table.render(),
                     counted(static_cast<long>(run.data.validation.size()), "validation image"), outcome.results.size(),
                     counted(outcome.int8_test.images, "test image"), percent(outcome.float_test.top1),
                     run.recipe.quant.activation, run.recipe.calibrate.method, percent(outcome.int8_test.top1));
}

std::string json(const Run& run, const Outcome& outcome) {
  nlohmann::json list = nlohmann::json::array();
  for (const Result& r : outcome.results) {
    list.push_back({{"activation", r.activation},
                    {"calibrator", r.method},
                    {"validation_top1", r.top1},
                    {"validation_loss", r.loss}});
  }
  const Result& chosen = outcome.results[outcome.chosen];
  return nlohmann::json{
      {"validation_images", run.data.validation.size()},
      {"test_images", outcome.int8_test.images},
      {"float", {{"validation_top1", outcome.float_validation}, {"test_top1", outcome.float_test.top1}}},
      {"results", list},
      {"chosen",
       {{"activation", chosen.activation}, {"calibrator", chosen.method}, {"test_top1", outcome.int8_test.top1}}}}
      .dump(2);
}

ExitCode calibrate(const Common& common, const Options& options) {
  const bool is_run = std::filesystem::is_directory(options.target);
  const RunDirectory directory = is_run ? run_directory(options.target) : RunDirectory{};
  const at::Device device = choose_device(common.device);
  Run run = open_run(read_recipe(is_run ? directory.recipe() : options.target, common.set), directory, device);
  if (!is_run && run.recipe.model.weights.empty()) {
    throw usage_error(fmt::format("{}: calibrate needs trained weights; set model.weights (--set model.weights=FILE)",
                                  options.target));
  }
  if (!common.out.empty()) {
    require_folder_of(common.out);
    if (is_run) require_free_name(directory, common.out);
  }
  say(fmt::format("device: {}", told_device(device)));
  const std::string engine = resolve_engines(run.recipe.evaluate.engines, devices(common)).front();
  const Weights weights = is_run ? load_float(run) : starting_weights(run);
  const Outcome outcome = choose(run, engine, weights, options.all);
  if (!common.out.empty()) {
    write_checkpoint(common.out, outcome.graph);
    say(fmt::format("wrote {} ({})", common.out, percent(outcome.int8_test.top1)));
  }
  print_result(common, text(run, outcome), [&] { return json(run, outcome); });
  return ExitCode::ok;
}

}  // namespace

void add_calibrate(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("calibrate", "post-training quantization of float weights; --out FILE writes int8");
  command->add_option("RECIPE", options->target, "a recipe with model.weights, or a run directory")->required();
  command->add_flag("--all", options->all,
                    "every activation scheme and calibrator; the best on the validation images is chosen");
  command->callback([&common, &action, options] {
    action = [&common, options] { return tell_failures([&] { return calibrate(common, *options); }); };
  });
}

}  // namespace octet::cli
