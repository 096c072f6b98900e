#include <fmt/core.h>
#include <torch/version.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "src/common/error.h"
#include "src/common/files.h"
#include "src/common/progress.h"
#include "trainers/gpu.h"
#include "trainers/run/run.h"

namespace octet {
namespace {

namespace fs = std::filesystem;

/// Folders alone are what a start on a full disk leaves.
bool holds_a_file(const std::string& folder) {
  if (!fs::exists(folder)) return false;
  const fs::recursive_directory_iterator all(folder);
  return std::any_of(begin(all), end(all), [](const fs::directory_entry& entry) { return !entry.is_directory(); });
}

void make_folders(const RunDirectory& directory) {
  std::error_code error;
  fs::create_directories(directory.checkpoints(), error);
  if (error) throw data_error(fmt::format("{}: cannot make this folder: {}", directory.checkpoints(), error.message()));
}

/// A run may go on where other engines run its int8 network.
void check_same_recipe(const RunDirectory& directory, const Recipe& recipe) {
  if (!fs::exists(directory.recipe())) {
    throw usage_error(fmt::format("{}: --resume, but there is no run (no recipe.yaml)", directory.root));
  }
  if (training_part(read_run_recipe(directory.recipe())) != training_part(recipe)) {
    throw usage_error(
        fmt::format("{}: --resume with another recipe than the run's own {} (only `evaluate` may differ); pass that "
                    "file, or train into another --out",
                    directory.root, directory.recipe()));
  }
}

/// A state file may be continued on another device, but not to the same bytes.
void tell_another_device(const RunDirectory& directory, at::Device device) {
  if (!fs::exists(directory.environment())) return;
  const auto environment = nlohmann::json::parse(read_file(directory.environment()), nullptr, /*exceptions=*/false);
  const std::string began = environment.is_object() ? environment.value("device", "") : "", now = device_name(device);
  if (began.empty() || began == now) return;
  say(
      fmt::format("warning: this run began on {} and goes on on {}: it will not end with the bytes of a run on one "
                  "device",
                  began, now));
}

}  // namespace

std::map<std::string, std::string> versions() {
  return {{"octet", OCTET_VERSION}, {"torch", TORCH_VERSION}, {"compiler", __VERSION__}};
}

FolderLock start_run_directory(const RunDirectory& directory, const Recipe& recipe, const RunStart& start) {
  if (start.resume) {
    check_same_recipe(directory, recipe);
    make_folders(directory);
    FolderLock lock(directory.root);
    tell_another_device(directory, start.device);
    write_file_atomically(directory.recipe(), write_recipe(recipe));
    write_file_atomically(directory.command(), read_file(directory.command()) + start.command + "\n");
    return lock;
  }
  if (holds_a_file(directory.root)) {
    throw usage_error(fmt::format("{}: already holds files; continue that run with --resume, or choose another --out",
                                  directory.root));
  }
  make_folders(directory);
  FolderLock lock(directory.root);
  write_file_atomically(directory.recipe(), write_recipe(recipe));
  write_file_atomically(directory.command(), start.command + "\n");
  const nlohmann::json environment = {{"versions", versions()},
                                      {"seed", recipe.seed},
                                      {"machine", start.machine},
                                      {"device", device_name(start.device)},
                                      {"recipe_hash", recipe_hash(recipe)}};
  write_file_atomically(directory.environment(), environment.dump(2) + "\n");
  return lock;
}

void require_free_name(const RunDirectory& directory, const std::string& file) {
  for (const std::string& other : directory.other_weights()) {
    if (fs::weakly_canonical(file) != fs::weakly_canonical(other)) continue;
    throw usage_error(
        fmt::format("{}: holds other weights of this run; name another file for the int8 checkpoint "
                    "(export.file in the recipe, or --out)",
                    file));
  }
}

RunDirectory new_run_directory(const std::string& parent, const std::string& name) {
  for (int number = 1;; ++number) {
    RunDirectory directory{fmt::format("{}/{}-{}", parent, name, number)};
    if (!fs::exists(directory.root)) return directory;
  }
}

}  // namespace octet
