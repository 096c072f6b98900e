// The commands of octet, one file each. add_xxx() declares a command's arguments and what it does; main.cpp lists them.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "src/common/error.h"
#include "src/engine/engine_choice.h"

namespace octet::cli {

/// Flags with one meaning in all commands that have them (main.cpp says which).
struct Common {
  std::vector<std::string> set;  ///< key.path=value, checked like the recipe file
  std::string out;               ///< train: the run directory; calibrate, export: the checkpoint; search: the recipe
  std::string device = "auto";   ///< auto, cpu, cuda, or cuda:N
  bool resume = false;
  bool quiet = false;
  bool json = false;         ///< one JSON document on stdout, everything else on stderr
  std::string command_line;  ///< as typed, for the run directory
};

/// The action of the command the user chose; set by its callback, run by main.
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
void add_search(CLI::App& app, const Common& common, Action& action);
void add_train(CLI::App& app, const Common& common, Action& action);
#endif

/// What is wrong with --device's value, or "".
std::string check_device_name(const std::string& device);

/// --device cuda:N leaves this process that GPU alone, of those that CUDA_VISIBLE_DEVICES names; it is GPU 0 from then
/// on. Before anything asks for a GPU. Throws Error(usage) where that variable names too few.
void choose_gpu(const Common& common);

/// --device cuda or cuda:N where no GPU can be used: Error(usage) that says what is missing.
void check_device(const Common& common);

/// The engines that --device leaves.
EngineDevices devices(const Common& common);

/// Prints the one JSON document of --json, or else the text, on stdout. A closed pipe is no error: who reads may stop.
void print_result(const Common& common, const std::string& text, const std::function<std::string()>& json);

}  // namespace octet::cli
