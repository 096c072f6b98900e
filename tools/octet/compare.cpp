// octet compare RUN: is what runs what was trained? Every layer, every code, all engines, over the test images. With
// --against: what another runtime makes of the network.
#include "src/eval/compare.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/onnx/import.h"
#include "tools/octet/commands.h"
#include "tools/octet/compare_against.h"
#include "tools/octet/measured_run.h"
#include "tools/octet/onnx_runtime.h"
#include "tools/octet/trained.h"

namespace octet::cli {
namespace {

nlohmann::json constants_json(const DerivedConstants& constants) {
  if (!constants.derived) return nullptr;
  nlohmann::json first = nlohmann::json::array();
  for (const WrongConstant& wrong : constants.first) {
    first.push_back({{"node", wrong.node},
                     {"what", wrong.what},
                     {"index", wrong.index < 0 ? nlohmann::json() : nlohmann::json(wrong.index)},
                     {"stored", wrong.stored},
                     {"expected", wrong.expected}});
  }
  return {{"derived", constants.count()}, {"wrong", constants.wrong}, {"first_wrong", first}};
}

std::string json(const Comparison& comparison) {
  nlohmann::json layers = nlohmann::json::array();
  for (const LayerDifference& layer : comparison.layers) {
    nlohmann::json differing = layer.differing, largest = layer.largest_lsb;
    for (size_t p = 0; p < differing.size(); ++p)
      if (!layer.shown_by(p)) differing[p] = largest[p] = nullptr;
    layers.push_back(
        {{"layer", layer.layer}, {"codes", layer.codes}, {"differing", differing}, {"largest_lsb", largest}});
  }
  const nlohmann::json identical =
      comparison.promised() || comparison.broken() ? nlohmann::json(comparison.identical()) : nullptr;
  return nlohmann::json{{"identical", identical},
                        {"verdict", verdict(comparison)},
                        {"programs", comparison.programs},
                        {"exact", comparison.exact},
                        {"images", comparison.images},
                        {"program_images", comparison.program_images},
                        {"differing_predictions", comparison.differing_predictions},
                        {"constants", constants_json(comparison.constants)},
                        {"layers", layers}}
      .dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

Comparison compare_trained(const Common& common, const MeasureOptions& options) {
  const MeasuredRun run = open_measured_run(common, options, {"auto"});
  auto [programs, constants] = trained_side(run.recipe, run.directory, common.device, run.graph);
  add_engines(run.graph, run.engines, run.compile, programs);
  if (programs.size() < 2)
    throw usage_error("compare needs two programs: name more engines, or use a build with training");
  Comparison comparison =
      octet::compare(run.graph, named(programs), run.data.test_images(options.images), run.recipe.evaluate.batch_size);
  comparison.constants = std::move(constants);
  return comparison;
}

ExitCode compare(const Common& common, const MeasureOptions& options, const std::vector<std::string>& against) {
  const Comparison comparison =
      against.empty() ? compare_trained(common, options) : compare_against(common, options, against);
  print_result(common, describe(comparison), [&] { return json(comparison); });
  return comparison.broken() ? ExitCode::promise : ExitCode::ok;
}

}  // namespace

void add_compare(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<MeasureOptions>();
  auto against = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand(
      "compare", "layer by layer: do codes and constants of every engine follow from what was trained?");
  add_measure_options(*command, *options, "all that can run here and promise the trained codes");
  command->get_option("RUN")->description(std::string("a run directory; with --against also an int8.safetensors") +
                                          (has_onnx() ? " or a quantized .onnx file" : ""));
  command
      ->add_option(
          "--against", *against,
          "onnxruntime, onnxruntime_unfused: counts what a Python with it (OCTET_PYTHON) makes of the network, "
          "of a checkpoint or quantized .onnx too, with random pictures then")
      ->delimiter(',')
      ->check(CLI::IsMember({kOnnxRuntime, kOnnxRuntimeUnfused}));
  command->callback([&common, &action, options, against] {
    action = [&common, options, against] { return compare(common, *options, *against); };
  });
}

}  // namespace octet::cli
