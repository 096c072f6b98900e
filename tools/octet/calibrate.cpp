// SPDX-License-Identifier: Apache-2.0
// octet calibrate RECIPE|RUN: post-training quantization of float weights, with one calibrator or with all of them.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "src/base/files.h"
#include "src/base/names.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/engine/engine.h"
#include "src/net/checkpoint.h"
#include "src/recipe/run.h"
#include "src/report/report.h"
#include "src/train/model/threads.h"
#include "tools/octet/commands.h"
#include "tools/octet/target.h"
#include "trainers/gpu.h"
#include "trainers/run/measure.h"
#include "trainers/run/ptq_search.h"

namespace octet::cli {
namespace {

struct CalibrateOptions {
  std::string target;
  bool all = false;
};

std::string_view activation_of(const PtqResult& result) { return name_in(kActivationSchemes, result.activation); }
std::string_view method_of(const PtqResult& result) { return name_or_auto(kCalibrationMethods, result.method); }

std::string text(const PtqChoice& choice, size_t validation_images) {
  const ScoreNames& names = score_names(choice.int8_test.task.labels);
  TextTable table({{"activation", Align::left}, {"calibrator", Align::left}, {names.score}, {"lost points"}});
  table.add_row({"float", "", percent(choice.float_validation), ""});
  for (const PtqResult& r : choice.results) {
    const std::string activation(activation_of(r)), method(method_of(r));
    if (!r.refused.empty()) {
      table.add_row({activation, method, "refused", ""});
      continue;
    }
    table.add_row(
        {activation, method, percent(r.score), fmt::format("{:.2f}", 100 * (choice.float_validation - r.score))});
  }
  std::string refusals;
  for (const PtqResult& r : choice.results)
    if (!r.refused.empty()) refusals += fmt::format("{} {}: {}\n", activation_of(r), method_of(r), r.refused);
  const std::string diagnosis = choice.diagnosis.empty() ? "" : "note: " + choice.diagnosis + "\n";
  return fmt::format(
      "{}{}: {}\n\non {}, which nothing was chosen on:\n{}\n{}", table.render() + refusals,
      counted(static_cast<long>(validation_images), "validation image"),
      choice.results.size() == 1 ? "nothing to choose from" : choice.int8_test.name + " is chosen",
      counted(choice.int8_test.images, "test image"),
      difference_sentence(choice.float_test, choice.int8_test, choice.lost, "post-training quantization"), diagnosis);
}

std::string json(const PtqChoice& choice, size_t validation_images) {
  using Json = nlohmann::ordered_json;
  const std::string key = score_names(choice.int8_test.task.labels).key;
  const std::string validation = "validation_" + key, test = "test_" + key;
  Json list = Json::array();
  for (const PtqResult& r : choice.results) {
    const bool ran = r.refused.empty();
    list.push_back({{"activation", activation_of(r)},
                    {"calibrator", method_of(r)},
                    {validation, ran ? Json(r.score) : Json(nullptr)},
                    {"validation_loss", ran ? Json(r.loss) : Json(nullptr)},
                    {"refused", ran ? Json(nullptr) : Json(r.refused)}});
  }
  const PtqResult& chosen = choice.results[choice.chosen];
  const Paired& lost = choice.lost;
  return Json{{"validation_images", validation_images},
              {"test_images", choice.int8_test.images},
              {"float", {{validation, choice.float_validation}, {test, choice.float_test.score()}}},
              {"results", list},
              {"chosen",
               {{"activation", activation_of(chosen)},
                {"calibrator", method_of(chosen)},
                {validation, chosen.score},
                {test, choice.int8_test.score()},
                {"points_lost", lost.points},
                {"points_lost_low", lost.low},
                {"points_lost_high", lost.high},
                {"only_float_right", lost.only_first},
                {"only_int8_right", lost.only_second},
                {"told_apart", lost.told_apart()}}},
              {"diagnosis", choice.diagnosis.empty() ? Json(nullptr) : Json(choice.diagnosis)}}
      .dump(2);
}

ExitCode calibrate(const Common& common, const CalibrateOptions& options) {
  const bool is_run = std::filesystem::is_directory(options.target);
  const RunDirectory directory = is_run ? run_directory(options.target) : RunDirectory{};
  const at::Device device = choose_device(common.device);
  Run run =
      open_run(is_run ? read_run_recipe(directory.recipe(), common.set) : read_given_recipe(options.target, common.set),
               directory, device);
  const OwnCores own_cores(run.device.is_cpu());
  require_weights("calibrate", options.target, run.recipe);
  if (!common.out.empty()) {
    require_place_for(common.out);
    if (is_run) require_free_name(directory, common.out);
  }
  say(fmt::format("device: {}", describe_device(device)));
  const std::string engine = resolve_engines(run.recipe.evaluate.engines, devices(common)).front();
  const Weights weights = is_run ? load_float(run) : starting_weights(run);
  const PtqChoice choice = choose_ptq(run, weights, options.all, [&](const Run& tried, const Int8Graph& graph) {
    return compile_engine(tried, engine, graph);
  });
  if (!common.out.empty()) {
    write_checkpoint(common.out, choice.graph);
    say(fmt::format("wrote {} ({})", common.out, percent(choice.int8_test.score())));
  }
  const size_t validation_images = run.data.validation.size();
  print_result(common, text(choice, validation_images), [&] { return json(choice, validation_images); });
  return ExitCode::ok;
}

}  // namespace

void add_calibrate(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command =
      app.add_subcommand("calibrate", "post-training quantization of float weights; --out FILE writes int8");
  command->add_option("RECIPE", options->target, "a recipe with model.weights, or a run directory")->required();
  command->add_flag("--all", options->all,
                    "every activation scheme and calibrator; the best on the validation images is chosen");
  command->callback([&common, &action, options] {
    action = [&common, options] { return explain_failures([&] { return calibrate(common, *options); }); };
  });
}

}  // namespace octet::cli
