// SPDX-License-Identifier: Apache-2.0
// The training side of compare, evaluate and inspect.
#include "tools/octet/trained.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "src/base/text.h"
#include "trainers/gpu.h"
#include "trainers/run/measure.h"
#include "trainers/run/quantize.h"
#include "trainers/run/stage_plan.h"

namespace octet::cli {

TrainedSide trained_side(const Recipe& recipe, const RunDirectory& directory, const std::string& device,
                         const Int8Graph& graph) {
  return explain_failures([&] {
    const Run run = open_run(recipe, directory, choose_device(device));
    const QuantizedModel model = load_quantized(run);
    return TrainedSide{trained_programs(run, model), derived_constants(run, model, graph)};
  });
}

std::vector<std::pair<std::string, std::unique_ptr<Program>>> all_trained_programs(const Recipe& recipe,
                                                                                   const RunDirectory& directory,
                                                                                   const std::string& device) {
  return explain_failures([&] {
    const Run run = open_run(recipe, directory, choose_device(device));
    const QuantizedModel quantized = load_quantized(run);
    std::vector<std::pair<std::string, std::unique_ptr<Program>>> programs;
    programs.emplace_back("float", float_program(run.graph, load_float(run), run.preprocessing));
    if (recipe.qat.float_control)
      programs.emplace_back("float_control", float_program(run.graph, load_float_control(run), run.preprocessing));
    programs.emplace_back("simulation", simulation_program(quantized, run.preprocessing));
    programs.emplace_back("qat_graph", qat_graph_program(quantized, run.preprocessing));
    return programs;
  });
}

FloatFile float_file(const Common& common, const MeasureOptions& options, bool boxes) {
  if (options.image_paths.empty())
    throw usage_error(
        fmt::format("{}: is a float network: --images FOLDER says which images it is measured on, --preset NAME how "
                    "they become its "
                    "input",
                    options.run));
  return explain_failures([&] {
    QuantizeOptions given{.request = {.network = options.run,
                                      .image_size = options.image_size,
                                      .outputs = options.outputs,
                                      .images = options.image_paths,
                                      .threads = options.threads.value_or(0)},
                          .image = options.image};
    return open_float_file(std::move(given), boxes, common.device);
  });
}

namespace {

std::string text(const StagePlan& plan, size_t parts, int images, int micro_batches, const std::string& device) {
  double all = 0;
  for (const PartCost& stage : plan.stages) all += stage.milliseconds;
  TextTable table({{"stage"},
                   {"to layer", Align::left},
                   {"time"},
                   {"fastest"},
                   {"slowest"},
                   {"share"},
                   {"holds"},
                   {"weights"},
                   {"passes on"}});
  const auto time = [](double milliseconds) { return human_seconds(milliseconds / 1e3); };
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PartCost& stage = plan.stages[i];
    table.add_row({std::to_string(i), stage.last, time(stage.milliseconds), time(stage.fastest), time(stage.slowest),
                   percent(stage.milliseconds / all, 1), human_bytes(stage.kept_bytes), human_bytes(stage.weight_bytes),
                   i + 1 < plan.stages.size() ? human_bytes(stage.border_bytes) : ""});
  }
  return fmt::format(
      "{}\n{} parts measured {} times each on {}, forward and backward pass of a micro-batch of {}\n"
      "time: each part's median, added up; fastest, slowest: likewise; holds: for the backward passes of all "
      "micro-batches under way there\n"
      "with {} micro-batches at most {:.2f}x one process with the same, without what travelling takes\n\n"
      "parallel:\n  stages: [{}]\n  micro_batches: {}\n",
      table.render(), parts, kTimesMeasured, device, counted(images, "image"), micro_batches, plan.speed_up,
      fmt::join(plan.layers, ", "), micro_batches);
}

std::string json(const StagePlan& plan, const std::vector<PartCost>& parts) {
  using Json = nlohmann::ordered_json;
  const auto list = [](const std::vector<PartCost>& costs) {
    Json rows = Json::array();
    for (const PartCost& cost : costs) {
      rows.push_back({{"last", cost.last},
                      {"milliseconds", cost.milliseconds},
                      {"fastest_milliseconds", cost.fastest},
                      {"slowest_milliseconds", cost.slowest},
                      {"kept_bytes", cost.kept_bytes},
                      {"border_bytes", cost.border_bytes},
                      {"weight_bytes", cost.weight_bytes}});
    }
    return rows;
  };
  return Json{
      {"layers", plan.layers}, {"speed_up", plan.speed_up}, {"stages", list(plan.stages)}, {"parts", list(parts)}}
      .dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

ExitCode inspect_stages(const Common& common, const std::string& path, int stages) {
  const Recipe recipe = read_given_recipe(path, common.set);
  const bool qat = recipe.qat.epochs > 0;
  const OptimizerRecipe& phase = qat ? recipe.qat : recipe.train;
  const int micro_batches = recipe.parallel.micro_batches;
  return explain_failures([&] {
    const Run run = open_run(recipe, RunDirectory{}, choose_device(common.device));
    require_stage_precision(phase, qat ? "qat" : "train", run.device);
    const std::vector<PartCost> parts = measure_parts(run, phase, micro_batches, qat, recipe.cuda.graph);
    const StagePlan plan = plan_stages(parts, stages, micro_batches);
    print_result(common,
                 text(plan, parts.size(), std::max(1, phase.batch_size / micro_batches), micro_batches,
                      describe_device(run.device)),
                 [&] { return json(plan, parts); });
    return ExitCode::ok;
  });
}

}  // namespace octet::cli
