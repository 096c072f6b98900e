// octet export RUN: writes the int8 checkpoint of a trained run again, byte for byte what training wrote; with --onnx a
// file for other runtimes.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "src/common/files.h"
#include "src/common/progress.h"
#include "src/graph/checkpoint.h"
#include "tools/octet/commands.h"
#include "tools/octet/export_onnx.h"
#include "tools/octet/target.h"
#include "trainers/gpu.h"
#include "trainers/loop/gpu_failure.h"
#include "trainers/run/measure.h"

namespace octet::cli {
namespace {

/// What train measured, as it stands in the checkpoint: "cpu_top1", ... Nothing for a run that has no report yet.
std::map<std::string, double> measured(const RunDirectory& directory) {
  std::map<std::string, double> accuracies;
  if (!std::filesystem::exists(directory.report_json())) {
    say(fmt::format("{}: not there, so the checkpoint will name no accuracies", directory.report_json()));
    return accuracies;
  }
  try {
    const nlohmann::json report = nlohmann::json::parse(read_file(directory.report_json()));
    for (const auto& row : report.at("rows")) {
      const bool pixels = row.contains("mean_iou") && !row.at("mean_iou").is_null();
      const std::string score = pixels ? "mean_iou" : "top1";
      accuracies[row.at("name").get<std::string>() + "_" + score] = row.at(score).get<double>();
    }
  } catch (const nlohmann::json::exception& error) {
    throw data_error(fmt::format("{}: not a report of octet train ({}); remove it to export without accuracies",
                                 directory.report_json(), error.what()));
  }
  return accuracies;
}

ExitCode export_run(const Common& common, const std::string& path) {
  const RunDirectory directory = run_directory(path);
  const Run run = open_run(recipe_of(directory, common.set), directory, choose_device(common.device));
  const std::string out = common.out.empty() ? directory.int8(run.recipe.export_.file) : common.out;
  require_free_name(directory, out);
  Int8Graph graph = to_int8(run, load_quantized(run));
  graph.recipe_hash = recipe_hash(read_run_recipe(directory.recipe()));  // the trained one, whatever --set said
  graph.accuracies = measured(directory);
  write_checkpoint(out, graph);
  print_result(common, fmt::format("wrote {}", out), [&] { return nlohmann::json{{"checkpoint", out}}.dump(2); });
  return ExitCode::ok;
}

/// A quantized network of other tools as a checkpoint.
ExitCode export_quantized_onnx(const Common& common, const std::string& path) {
  if (common.out.empty()) throw usage_error(fmt::format("{}: name the checkpoint: --out int8.safetensors", path));
  require_no_set(common, "an .onnx file is taken as it is");
  require_place_for(common.out);
  write_checkpoint(common.out, open_checkpoint(path).graph);
  print_result(common, fmt::format("wrote {}", common.out), [&] {
    return nlohmann::json{{"checkpoint", common.out}}.dump(2);
  });
  return ExitCode::ok;
}

}  // namespace

void add_export(CLI::App& app, const Common& common, Action& action) {
  auto path = std::make_shared<std::string>();
  auto onnx = std::make_shared<OnnxExport>();
  CLI::App* command = app.add_subcommand("export", "write a run's int8 checkpoint (again), or the network as ONNX");
  command->add_option("RUN", *path, "a run directory, or a quantized .onnx; with --onnx also an int8.safetensors")
      ->required();
  CLI::Option* file = command->add_option("--onnx", onnx->file, "write ONNX for other runtimes: int8 in QDQ form");
  command->add_flag("--float", onnx->float_network, "with --onnx: the float network of the run")->needs(file);
  command->add_option("--profile", onnx->profile, "with --onnx: for onnxruntime, openvino, tensorrt or int32_bias")
      ->needs(file);
  command->add_option("--opset", onnx->opset, "with --onnx: 13 or 21")->needs(file)->check(CLI::IsMember({13, 21}));
  command->callback([&common, &action, path, onnx] {
    action = [&common, path, onnx] {
      return explain_failures([&] {
        if (!onnx->file.empty()) return export_onnx(common, *path, *onnx);
        return path->ends_with(".onnx") ? export_quantized_onnx(common, *path) : export_run(common, *path);
      });
    };
  });
}

}  // namespace octet::cli
