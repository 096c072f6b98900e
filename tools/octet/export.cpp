// SPDX-License-Identifier: Apache-2.0
// octet export RUN: writes the int8 checkpoint of a trained run again, byte for byte what training wrote; with --onnx a
// file for other runtimes.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/safetensors.h"
#include "src/net/checkpoint.h"
#include "src/net/onnx/onnx.h"
#include "tools/octet/commands.h"
#include "tools/octet/target.h"
#include "trainers/gpu.h"
#include "trainers/run/measure.h"
#include "trainers/run/run.h"

namespace octet::cli {
namespace {

/// What the command line says about ONNX.
struct OnnxExport {
  std::string file;  ///< to write; empty: no ONNX is asked for
  bool float_network = false;
  std::optional<std::string> profile;  ///< without: onnxruntime
  int opset = 13;
};

/// Returns the ONNX file of a run's float network.
std::string float_bytes(const Common& common, const std::string& target, int opset) {
  if (!std::filesystem::is_directory(target)) {
    throw usage_error(fmt::format("{}: holds the int8 network only; export --float needs the run directory", target));
  }
  const RunDirectory directory = run_directory(target);
  const Run run = open_run(recipe_of(directory, common.set), directory, choose_device(common.device));
  load_float(run);  // throws where the run has none, or another network's
  return write_float(run.graph, read_safetensors(directory.float_weights()), run.preprocessing, opset);
}

/// Throws Error(usage) that begins with `why` if --set was given, where no recipe is read.
void require_no_set(const Common& common, const std::string& why) {
  if (!common.set.empty()) throw usage_error(fmt::format("export: {}, --set changes nothing; leave it out", why));
}

/// Tells the user of the file that was written; `what` is its key in the JSON document.
ExitCode tell_written(const Common& common, const char* what, const std::string& file) {
  print_result(common, fmt::format("wrote {}", file), [&] { return nlohmann::json{{what, file}}.dump(2); });
  return ExitCode::ok;
}

/// Writes the network of a run directory or checkpoint as ONNX.
ExitCode export_onnx(const Common& common, const std::string& target, const OnnxExport& options) {
  if (!options.file.ends_with(".onnx"))
    throw usage_error(fmt::format("--onnx {}: name a file that ends in .onnx", options.file));
  if (!common.out.empty()) throw usage_error("--out: --onnx names the file already");
  if (options.float_network && options.profile)
    throw usage_error(
        "export: --profile is how an int8 network is written, --float writes the float one; leave one out");
  if (!options.float_network) require_no_set(common, "--onnx writes the int8 network as it is");
  require_place_for(options.file);
  const OnnxProfile profile = value_named(kOnnxProfiles, options.profile.value_or("onnxruntime"), "--profile");
  std::vector<std::string> notes;
  const auto int8_bytes = [&] {
    const Int8Graph graph = open_checkpoint(target).graph;
    return write_qdq(graph, {.profile = profile, .opset = options.opset}, nullptr, &notes);
  };
  const std::string bytes = options.float_network ? float_bytes(common, target, options.opset) : int8_bytes();
  write_file_atomically(options.file, bytes);
  for (const std::string& note : notes) say(fmt::format("{}: {}", options.file, note));
  return tell_written(common, "onnx", options.file);
}

/// Returns the accuracies of the run's report, as the checkpoint names them: "cpu_top1", ...; none without a report.
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

/// Writes a run's checkpoint.
ExitCode export_run(const Common& common, const std::string& path) {
  const RunDirectory directory = run_directory(path);
  const Run run = open_run(recipe_of(directory, common.set), directory, choose_device(common.device));
  const std::string out = common.out.empty() ? directory.int8(run.recipe.export_.file) : common.out;
  require_free_name(directory, out);
  Int8Graph graph = to_int8(run, load_quantized(run));
  graph.recipe_hash = recipe_hash(read_run_recipe(directory.recipe()));  // the trained one, whatever --set said
  graph.accuracies = measured(directory);
  write_checkpoint(out, graph);
  return tell_written(common, "checkpoint", out);
}

/// Writes a quantized ONNX file of another tool as a checkpoint that ends at `outputs`, if there are any.
ExitCode export_quantized_onnx(const Common& common, const std::string& path, const std::vector<std::string>& outputs) {
  if (common.out.empty()) throw usage_error(fmt::format("{}: name the checkpoint: --out int8.safetensors", path));
  require_no_set(common, "an .onnx file is taken as it is");
  require_place_for(common.out);
  const ImportedInt8 imported = import_qdq(path, outputs);
  for (const std::string& note : imported.notes) say(fmt::format("{}: {}", path, note));
  write_checkpoint(common.out, imported.graph);
  return tell_written(common, "checkpoint", common.out);
}

}  // namespace

void add_export(CLI::App& app, const Common& common, Action& action) {
  auto path = std::make_shared<std::string>();
  auto onnx = std::make_shared<OnnxExport>();
  auto outputs = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("export", "write a run's int8 checkpoint (again), or the network as ONNX");
  command->add_option("RUN", *path, "a run directory, or a quantized .onnx; with --onnx also an int8.safetensors")
      ->required();
  CLI::Option* file = command->add_option("--onnx", onnx->file, "write ONNX for other runtimes: int8 in QDQ form");
  command->add_flag("--float", onnx->float_network, "with --onnx: the float network of the run")->needs(file);
  command->add_option("--profile", onnx->profile, "with --onnx: for onnxruntime, openvino, tensorrt or int32_bias")
      ->needs(file);
  command->add_option("--opset", onnx->opset, "with --onnx: 13 or 21")->needs(file)->check(CLI::IsMember({13, 21}));
  command->add_option("--outputs", *outputs, "of a quantized .onnx: end the network at these values of the file")
      ->delimiter(',')
      ->excludes(file);
  command->callback([&common, &action, path, onnx, outputs] {
    action = [&common, path, onnx, outputs] {
      return explain_failures([&] {
        if (!onnx->file.empty()) return export_onnx(common, *path, *onnx);
        if (path->ends_with(".onnx")) return export_quantized_onnx(common, *path, *outputs);
        if (!outputs->empty())
          throw usage_error("--outputs: ends a quantized .onnx file; of a run model.outputs says where it ends");
        return export_run(common, *path);
      });
    };
  });
}

}  // namespace octet::cli
