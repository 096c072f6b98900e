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
  double top1 = 0;
};

/// Calibrates with run.recipe and measures on `engine`; the checkpoint stays in `graph`.
Result quantize(const Run& run, const std::string& engine, const Weights& weights, Int8Graph& graph) {
  QuantizedModel model = make_quantized(run, weights);
  octet::calibrate(model, run);
  graph = to_int8(run, model);
  const std::unique_ptr<Program> program = compile_engine(run, engine, graph);
  const std::string& activation = run.recipe.quant.activation;
  const std::string& method = run.recipe.calibrate.method;
  return {activation, method, measure(run, fmt::format("{} {}", activation, method), *program, "").evaluation.top1};
}

std::string text(double float_top1, const std::vector<Result>& results) {
  TextTable table({{"activation", Align::left}, {"calibrator", Align::left}, {"top-1"}, {"lost points"}});
  table.add_row({"float", "", percent(float_top1), ""});
  for (const Result& r : results) {
    table.add_row({r.activation, r.method, percent(r.top1), fmt::format("{:.2f}", 100 * (float_top1 - r.top1))});
  }
  return table.render();
}

std::string json(double float_top1, const std::vector<Result>& results) {
  nlohmann::json list = nlohmann::json::array();
  for (const Result& r : results)
    list.push_back({{"activation", r.activation}, {"calibrator", r.method}, {"top1", r.top1}});
  return nlohmann::json{{"float_top1", float_top1}, {"results", list}}.dump(2);
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
  const double float_top1 =
      measure(run, "float", *float_program(run.graph, weights, run.preprocessing), "").evaluation.top1;

  std::vector<Result> results;
  Int8Graph graph, best;
  const auto try_one = [&] {
    results.push_back(quantize(run, engine, weights, graph));
    if (results.size() == 1 || results.back().top1 > best.accuracies.at("int8_top1")) {
      graph.accuracies = {{"float_top1", float_top1}, {"int8_top1", results.back().top1}};
      best = graph;
    }
  };
  if (!options.all) {
    try_one();
  } else {
    for (const char* activation : {"symmetric_s8", "unsigned_u8", "affine_u8"}) {
      for (const char* method : {"minmax", "percentile", "mse", "entropy"}) {
        run.recipe.quant.activation = activation;
        run.recipe.calibrate.method = method;
        try_one();
      }
    }
  }
  if (!common.out.empty()) {
    write_checkpoint(common.out, best);
    say(fmt::format("wrote {} ({})", common.out, percent(best.accuracies.at("int8_top1"))));
  }
  print_result(common, text(float_top1, results), [&] { return json(float_top1, results); });
  return ExitCode::ok;
}

}  // namespace

void add_calibrate(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("calibrate", "post-training quantization of float weights; --out FILE writes int8");
  command->add_option("RECIPE", options->target, "a recipe with model.weights, or a run directory")->required();
  command->add_flag("--all", options->all, "a table of every activation scheme and calibrator");
  command->callback([&common, &action, options] {
    action = [&common, options] { return tell_failures([&] { return calibrate(common, *options); }); };
  });
}

}  // namespace octet::cli
