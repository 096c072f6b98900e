// octet export RUN|CHECKPOINT --onnx FILE: the network for other runtimes.
#include "tools/octet/export_onnx.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/common/files.h"
#include "src/common/progress.h"
#include "src/onnx/export.h"
#include "src/tensor_files/safetensors.h"
#include "tools/octet/target.h"
#include "trainers/gpu.h"
#include "trainers/run/run.h"

namespace octet::cli {
namespace {

/// The float network as it stands before quantization.
std::string float_bytes(const Common& common, const std::string& target, int opset) {
  if (!std::filesystem::is_directory(target)) {
    throw usage_error(fmt::format("{}: holds the int8 network only; export --float needs the run directory", target));
  }
  const RunDirectory directory = run_directory(target);
  const Run run = open_run(recipe_of(directory, common.set), directory, choose_device(common.device));
  load_float(run);  // throws where the run has none, or another network's
  return write_float(run.graph, read_safetensors(directory.float_weights()), run.preprocessing, opset);
}

}  // namespace

void require_no_set(const Common& common, const std::string& why) {
  if (!common.set.empty()) throw usage_error(fmt::format("export: {}, --set changes nothing; leave it out", why));
}

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
  const std::string bytes =
      options.float_network
          ? float_bytes(common, target, options.opset)
          : write_qdq(open_checkpoint(target).graph, {.profile = profile, .opset = options.opset}, nullptr, &notes);
  write_file_atomically(options.file, bytes);
  for (const std::string& note : notes) say(fmt::format("{}: {}", options.file, note));
  print_result(common, fmt::format("wrote {}", options.file), [&] {
    return nlohmann::json{{"onnx", options.file}}.dump(2);
  });
  return ExitCode::ok;
}

}  // namespace octet::cli
