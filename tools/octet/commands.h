// SPDX-License-Identifier: Apache-2.0
// The commands of octet, one file each: add_xxx() declares a command's arguments and its action. main.cpp lists them.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/engine/engine.h"

namespace octet::cli {

/// The flags that mean the same in all commands that have them (main.cpp says which).
struct Common {
  std::vector<std::string> set;  ///< key.path=value, checked like the recipe file
  std::string out;               ///< train: the run directory; calibrate, export: the checkpoint; search: the recipe
  std::string device = "auto";   ///< auto, cpu, cuda, or cuda:N
  bool resume = false;
  bool quiet = false;
  bool json = false;         ///< one JSON document on stdout, everything else on stderr
  std::string command_line;  ///< as the user typed it, for the run directory
};

/// What the chosen command does: its callback sets the action, main() runs it.
using Action = std::function<ExitCode()>;

void add_bench(CLI::App& app, const Common& common, Action& action);
void add_compare(CLI::App& app, const Common& common, Action& action);
void add_doctor(CLI::App& app, const Common& common, Action& action);
void add_evaluate(CLI::App& app, const Common& common, Action& action);
void add_inspect(CLI::App& app, const Common& common, Action& action);
void add_run(CLI::App& app, const Common& common, Action& action);
#if OCTET_TRAINING
void add_analyze(CLI::App& app, const Common& common, Action& action);
void add_calibrate(CLI::App& app, const Common& common, Action& action);
void add_export(CLI::App& app, const Common& common, Action& action);
void add_quantize(CLI::App& app, const Common& common, Action& action);
void add_search(CLI::App& app, const Common& common, Action& action);
void add_train(CLI::App& app, const Common& common, Action& action);
#endif

/// Returns what is wrong with a value of --device, or "".
std::string check_device_name(const std::string& device);

/// For --device cuda:N, makes that GPU, of those that CUDA_VISIBLE_DEVICES names, the only one of this process, which
/// is GPU 0 from then on. Called before anything asks for a GPU. Throws Error(usage) if the variable names too few.
void choose_gpu(const Common& common);

/// Throws Error(usage) that says what is missing if --device is cuda or cuda:N but no GPU can be used. CUDA begins with
/// it.
void check_device(const Common& common);

/// Returns the engines that --device allows.
EngineDevices devices(const Common& common);

/// Prints the JSON document of --json, or else the text, on stdout. A closed pipe is no error, as the reader may stop
/// early.
void print_result(const Common& common, const std::string& text, const std::function<std::string()>& json);

}  // namespace octet::cli
