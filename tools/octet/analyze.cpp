// octet analyze RECIPE|RUN: which layers quantization costs the most.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "src/common/files.h"
#include "src/common/interrupt.h"
#include "src/common/progress.h"
#include "src/common/text_table.h"
#include "src/model/own_cores.h"
#include "src/qat/sensitivity.h"
#include "src/run/given_recipe.h"
#include "tools/octet/analyze_page.h"
#include "tools/octet/commands.h"
#include "tools/octet/target.h"
#include "trainers/gpu.h"
#include "trainers/loop/gpu_failure.h"
#include "trainers/run/run.h"
#include "trainers/run/validation_pictures.h"

namespace octet::cli {
namespace {

struct Options {
  std::string target, html;
  int images = 256;
  int channels = 3;
};

std::string text(const MeasuredLayers& measured) {
  const LogitsLoss& all = measured.result.all;
  return fmt::format("{}\nall layers quantized: logits {}, the float network's class on {} of {}\n{}\n",
                     sensitivity_table(measured.result).render(), decibels(all.sqnr_db), percent(all.agreement, 1),
                     measured.answers(), kSensitivityLegend);
}

std::string json(const Sensitivity& result, size_t images) {
  using Json = nlohmann::ordered_json;  // writes what is infinite as null
  const auto loss = [](const LogitsLoss& l) { return Json{{"sqnr_db", l.sqnr_db}, {"same_class", l.agreement}}; };
  Json layers = Json::array();
  for (const LayerSensitivity& layer : result.layers) {
    Json worst = Json::array();
    for (const ChannelLoss& c : layer.worst) worst.push_back({{"channel", c.channel}, {"sqnr_db", c.sqnr_db}});
    layers.push_back({{"layer", layer.name},
                      {"op", layer.op},
                      {"weight_bits", layer.weight_bits},
                      {"activation_bits", layer.activation_bits},
                      {"alone", loss(layer.alone)},
                      {"all_but", loss(layer.all_but)},
                      {"output_sqnr_db", layer.sqnr_db},
                      {"worst_channels", worst}});
  }
  return Json{{"validation_images", images}, {"all", loss(result.all)}, {"layers", layers}}.dump(
      2, ' ', false, Json::error_handler_t::replace);
}

ExitCode analyze(const Common& common, const Options& options) {
  if (!options.html.empty()) require_place_for(options.html);
  const bool is_run = std::filesystem::is_directory(options.target);
  const RunDirectory directory = is_run ? run_directory(options.target) : RunDirectory{};
  const Recipe recipe = is_run ? recipe_of(directory, common.set) : read_given_recipe(options.target, common.set);
  require_apart(options.target, recipe, {{"--html", options.html}});
  if (!is_run && recipe.model.weights.empty() && recipe.model.onnx.empty())
    throw usage_error(
        fmt::format("{}: analyze needs trained weights; set model.weights (--set model.weights=FILE)", options.target));
  const Run run = open_run(recipe, directory, choose_device(common.device));
  const OwnCores own_cores(run.device.is_cpu());
  say(fmt::format("device: {}", describe_device(run.device)));
  QuantizedModel model = is_run ? load_quantized(run) : make_quantized(run, starting_weights(run));
  if (!is_run) calibrate(model, run);
  const std::vector<at::Tensor> batches = validation_pictures(run, options.images);
  size_t images = 0;
  for (const at::Tensor& batch : batches) images += static_cast<size_t>(batch.size(0));
  std::unique_ptr<Progress> progress;
  const Sensitivity result =
      sensitivity(model, batches, static_cast<size_t>(options.channels), [&](size_t done, size_t all) {
        if (!progress) progress = std::make_unique<Progress>("analyze", static_cast<long>(all), "layers");
        progress->update(static_cast<long>(done));
        throw_if_interrupted();
      });
  progress.reset();
  const MeasuredLayers measured{result, images, run.data.task().labels};
  print_result(common, text(measured), [&] { return json(result, images); });
  if (!options.html.empty()) write_file_atomically(options.html, analyze_page(measured, options.target));
  return ExitCode::ok;
}

}  // namespace

void add_analyze(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("analyze", "what quantization costs layer by layer, each alone and all but each");
  command->add_option("RECIPE", options->target, "a recipe with model.weights, or a run directory")->required();
  command->add_option("--images", options->images, "so many validation images")->check(CLI::Range(1, 10000000));
  command->add_option("--channels", options->channels, "of each layer name so many of the worst")
      ->check(CLI::Range(0, 10000));
  command->add_option("--html", options->html, "write a page of it into this file: bars by layer, and the table");
  command->callback([&common, &action, options] {
    action = [&common, options] { return explain_failures([&] { return analyze(common, *options); }); };
  });
}

}  // namespace octet::cli
