// SPDX-License-Identifier: Apache-2.0
#include "tools/octet/target.h"

#include <fmt/format.h>

#include <filesystem>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/net/checkpoint.h"
#include "src/net/onnx/onnx.h"
#include "src/report/report.h"

namespace octet::cli {
namespace {

/// Rewrites the page of a run that still says that it is running although no process works in its folder (it was
/// killed, or the machine switched off), and tells the user. A folder that cannot be written, or on a file system that
/// cannot tell who works in it, stays unchanged.
void tell_ended_run(const RunDirectory& directory) try {
  const std::string page = directory.report_html();
  if (!std::filesystem::exists(page)) return;
  const std::optional<std::string> ended = ended_page(
      read_file(page), fmt::format("Stopped: its process ended without a word (killed, out of memory, or the machine "
                                   "went down); to go on: octet train {} --resume",
                                   shell_word(directory.root)));
  if (!ended || FolderLock::taken(directory.root) != FolderLock::Taken::no) return;
  write_file_atomically(page, *ended);
  say(fmt::format("{}: this run's process ended without a word; its page says so now", directory.root));
} catch (const Error&) {  // what the user asked for does not depend on the page
}

/// Returns the checkpoint file of `path`, which is that file or a run directory.
std::string checkpoint_of(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::exists(path)) throw data_error(fmt::format("{}: no such checkpoint or run directory", path));
  if (!fs::is_directory(path)) return path;
  const RunDirectory directory = run_directory(path);
  const std::string file = directory.int8(read_run_recipe(directory.recipe()).export_.file);
  if (!fs::exists(file)) {
    throw data_error(
        fmt::format("{}: this run has no int8 checkpoint yet{}", file, why_unfinished(directory.report_html(), path)));
  }
  return file;
}

}  // namespace

std::string checkpoint_help() {
  return has_onnx() ? "an int8.safetensors, a run directory or a quantized .onnx file"
                    : "an int8.safetensors or a run directory (.onnx files: a build with -DOCTET_ONNX=ON)";
}

Checkpoint open_checkpoint(const std::string& path) {
  const std::string file = checkpoint_of(path);
  try {
    if (!file.ends_with(".onnx")) return {file, read_checkpoint(file)};
    const ImportedInt8 imported = import_qdq(file);
    for (const std::string& note : imported.notes) say(fmt::format("{}: {}", file, note));
    return {file, imported.graph};
  } catch (const Error& error) {
    if (file == path) throw;
    throw Error(error.code(), fmt::format("{}; octet export {} writes it again", error.what(), shell_word(path)));
  }
}

void require_apart(const std::string& target, const Recipe& recipe,
                   const std::vector<std::pair<std::string_view, std::string>>& written) {
  std::map<std::filesystem::path, std::string_view> taken;
  const auto take = [&](std::string_view what, const std::string& file) {
    return taken.emplace(std::filesystem::weakly_canonical(file), what);
  };
  const bool is_run = std::filesystem::is_directory(target);
  const RunDirectory directory{target};
  take("the recipe", is_run ? directory.recipe() : target);
  if (is_run) {
    for (const std::string& file : directory.other_weights()) take("the run's weights", file);
    take("the run's checkpoint", directory.int8(recipe.export_.file));
  }
  if (!recipe.model.weights.empty()) take("model.weights", recipe.model.weights);
  if (!recipe.model.onnx.empty()) take("model.onnx", recipe.model.onnx);
  for (const auto& [option, file] : written) {
    if (file.empty()) continue;
    const auto [other, is_new] = take(option, file);
    if (!is_new)
      throw usage_error(fmt::format("{} and {} both name {}: one would overwrite the other; name another file",
                                    other->second, option, file));
  }
}

void require_weights(const std::string& command, const std::string& target, const Recipe& recipe) {
  if (std::filesystem::is_directory(target) || !recipe.model.weights.empty() || !recipe.model.onnx.empty()) return;
  throw usage_error(
      fmt::format("{}: {} needs trained weights; set model.weights (--set model.weights=FILE)", target, command));
}

RunDirectory run_directory(const std::string& path) {
  RunDirectory directory{path};
  while (directory.root.size() > 1 && directory.root.back() == '/') directory.root.pop_back();
  if (!std::filesystem::exists(directory.recipe())) {
    if (const std::string kind = kind_of_network_file(path); !kind.empty())
      throw data_error(fmt::format("{}: expected a run directory, found {}", path, kind));
    throw data_error(std::filesystem::exists(path)
                         ? fmt::format("{}: not a run directory (no recipe.yaml in it); octet train makes one", path)
                         : fmt::format("{}: no such run directory; octet train makes one", path));
  }
  tell_ended_run(directory);
  return directory;
}

Recipe recipe_of(const RunDirectory& directory, const std::vector<std::string>& overrides) {
  const Recipe trained = read_run_recipe(directory.recipe());
  Recipe recipe = read_run_recipe(directory.recipe(), overrides);
  if (recipe.model != trained.model || recipe.quant != trained.quant) {
    throw usage_error(fmt::format("--set: model and quant of {} are what was trained; train another run to change them",
                                  directory.root));
  }
  return recipe;
}

void check_fits(const Int8Graph& graph, const std::string& checkpoint, RunData& data) {
  require_images(graph);
  const Shape& in = graph.input_shape();
  const Transform& images = data.evaluation_transform;
  if (in.c != images.channels || in.h != images.height || in.w != images.width) {
    throw usage_error(fmt::format("{} reads {}x{}x{} images, the run's data set gives {}x{}x{}", checkpoint, in.c, in.h,
                                  in.w, images.channels, images.height, images.width));
  }
  if (graph.boxes) data.detector = std::make_shared<BoxDecoder>(box_decoder(graph));
  require_answers(data.task(), graph, checkpoint);
}

}  // namespace octet::cli
