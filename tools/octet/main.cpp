// SPDX-License-Identifier: Apache-2.0
// octet: trains convolutional networks so that they run as int8, and proves that what runs is what was trained.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <new>
#include <system_error>

#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/engine/engine.h"
#include "src/engine/kernel_cache.h"
#include "tools/octet/commands.h"

namespace octet::cli {
namespace {

constexpr const char* kFooter =
    "examples:\n"
    "  octet train recipes/small_cnn_fashion_mnist_affine_u8.yaml --out runs/demo\n"
    "  octet train recipes/resnet20_cifar10_int8.yaml --set data.path=/data/cifar10 --set qat.epochs=5\n"
    "  octet train runs/demo --resume     goes on where that run was stopped\n"
    "  octet compare runs/demo            does every engine give the codes that were trained?\n"
    "  octet run runs/demo shirt.png      top-5 with names\n"
    "  octet bench --model resnet50 --batch 1,8\n"
    "\noctet COMMAND --help lists a command's own flags: --set KEY=VALUE, --out, --resume, ...\n"
    "exit codes: 0 good, 1 a promise broken, 2 usage or recipe, 3 data or file, 130 interrupted";

constexpr std::string_view kGpu = "cuda:";
constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

/// Returns the number of GPUs that the NVIDIA driver shows, whatever CUDA_VISIBLE_DEVICES says; 0 without a driver.
long gpus_of_driver() {
  std::error_code none;
  const std::filesystem::directory_iterator gpus("/proc/driver/nvidia/gpus", none);
  return none ? 0 : std::distance(begin(gpus), end(gpus));
}

/// Adds the flags of every command; the program has them too, so that they may stand before or after the command.
void add_general_flags(CLI::App& app, Common& common) {
  app.add_option("--device", common.device, "auto, cpu, cuda (the first GPU), or cuda:1 for the second")
      ->check(check_device_name);
  app.add_flag("--quiet", common.quiet, "no progress, errors only");
  app.add_flag("--json", common.json, "one JSON document on stdout");
}

/// Adds the flags of commands that read recipes. Each command has only the flags that it uses; others are refused.
void add_recipe_flags(CLI::App& command, Common& common) {
  const auto is_one_of = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), command.get_name()) != names.end();
  };
  if (is_one_of({"train", "calibrate", "analyze", "search", "evaluate", "compare", "export", "inspect"})) {
    command.add_option("--set", common.set, "override a recipe key: --set quant.activation=affine_u8")
        ->allow_extra_args(false);
  }
  if (is_one_of({"train"})) {
    command.add_option("--out", common.out, "the run directory to make (default: runs/RECIPE-1, -2, ...)");
    command.add_flag("--resume", common.resume, "go on from the last checkpoint");
  }
  if (is_one_of({"calibrate", "export", "quantize"}))
    command.add_option("--out", common.out, "the int8 checkpoint to write");
  if (is_one_of({"search"})) command.add_option("--out", common.out, "the recipe to write, with the chosen plan");
}

/// Returns the command line as the user typed it.
std::string typed(int argc, char** argv) {
  std::string line = "octet";
  for (int i = 1; i < argc; ++i) line += " " + shell_word(argv[i]);
  return line;
}

/// Prints an error. (fmt::print would throw if stderr is closed.)
void complain(const std::string& line) { std::fputs(("octet: " + printable_lines(line) + "\n").c_str(), stderr); }

std::string did_you_mean(const std::string& word, const std::vector<std::string>& names) {
  const std::string close = nearest(
      word, [&](size_t i) { return std::string_view(names[i]); }, names.size());
  return close.empty() ? "" : fmt::format(" (did you mean '{}'?)", close);
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

/// Returns what is wrong with the command line, in one line.
std::string usage_problem(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty() && chosen.empty()) return "no command; octet --help lists them";
  if (chosen.empty() && !unknown.front().starts_with('-')) {
    const std::vector<std::string> names = command_names(app);
    std::string line = fmt::format("unknown command '{}'{}", unknown.front(), did_you_mean(unknown.front(), names));
#if !OCTET_TRAINING
    for (const char* name : {"train", "quantize", "calibrate", "analyze", "search", "export"})
      if (unknown.front() == name)
        line = fmt::format("'{}' needs LibTorch, and this build has none (-DOCTET_TRAINING=OFF)", name);
#endif
    return fmt::format("{}; commands: {}", line, fmt::join(names, ", "));
  }
  const CLI::App& where = chosen.empty() ? app : *chosen.front();
  const std::string command = chosen.empty() ? "" : where.get_name() + ": ";
  const std::string help = fmt::format("octet {}--help tells more", chosen.empty() ? "" : where.get_name() + " ");
  if (unknown.empty()) return fmt::format("{}{}; {}", command, error.what(), help);
  std::vector<std::string> flags;
  for (const CLI::Option* option : where.get_options())
    if (!option->get_lnames().empty()) flags.push_back("--" + option->get_lnames().front());
  return fmt::format("{}unknown argument '{}'{}; {}", command, unknown.front(), did_you_mean(unknown.front(), flags),
                     help);
}

/// Lets malloc() take large tensors from the heap too, and keep the heap as large as it was. Else each of more than
/// 32 MiB, the most that glibc's threshold grows to, is mapped anew for every operator and all its pages fault. Not
/// for training and calibration, whose larger batches leave gaps in the heap that make the peak 10 to 16 % larger
/// (tools/lab/notebooks/ranges.md).
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

ExitCode run(int argc, char** argv) {
  CLI::App app{"octet trains networks so that they run as int8, and proves that what runs is what was trained.",
               "octet"};
  Common common;
  common.command_line = typed(argc, argv);
  Action action;
  app.require_subcommand(1);
  set_kernel_cache(kernel_cache_folder());
  app.set_version_flag("--version", "octet " OCTET_VERSION);
#if OCTET_TRAINING
  add_train(app, common, action);
  add_quantize(app, common, action);
  add_calibrate(app, common, action);
  add_analyze(app, common, action);
  add_search(app, common, action);
#endif
  add_evaluate(app, common, action);
#if OCTET_TRAINING
  add_export(app, common, action);
#endif
  add_run(app, common, action);
  add_compare(app, common, action);
  add_bench(app, common, action);
  add_inspect(app, common, action);
  add_doctor(app, common, action);
  for (CLI::App* command : app.get_subcommands({})) {
    add_recipe_flags(*command, common);
    add_general_flags(*command, common);
  }
  add_general_flags(app, common);
  app.footer(kFooter);  // last: commands would inherit it
  if (argc == 1) {
    std::cerr << app.help();
    return ExitCode::usage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw usage_error(usage_problem(app, error));
    app.exit(error, std::cout, std::cerr);  // --help, --version
    return ExitCode::ok;
  }
  install_interrupt_handler();
  std::signal(SIGPIPE, SIG_IGN);  // training goes on when nobody reads its progress any more
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is a write error with a message, not a killed process
  set_verbosity(common.quiet ? Verbosity::quiet : Verbosity::normal);
  const std::string command = app.get_subcommands().front()->get_name();
  if (command == "doctor" && common.device != "auto")
    throw usage_error("doctor: --device would change nothing: it looks at all of the machine");
  choose_gpu(common);
  if (command != "train") check_device(common);  // train reads its recipe first, which says how CUDA is to begin
  if (command == "quantize") keep_freed_memory();
  return action();
}

/// Ends the process without LibTorch's destructors, which are a third of what a short command takes: all that is to
/// outlive it is written and closed by now. AddressSanitizer looks for leaks behind them.
int leave(ExitCode code) {
  std::cout.flush();
  std::fflush(nullptr);
#ifndef __SANITIZE_ADDRESS__
  std::_Exit(static_cast<int>(code));
#endif
  return static_cast<int>(code);
}

}  // namespace

void print_result(const Common& common, const std::string& text, const std::function<std::string()>& json) {
  std::string out = common.json ? json() : printable_lines(text);
  if (out.empty() || out.back() != '\n') out += '\n';
  errno = 0;
  const bool written = std::fwrite(out.data(), 1, out.size(), stdout) == out.size() && std::fflush(stdout) == 0;
  if (written || errno == EPIPE) return;  // a reader that has seen enough (head, less) is no failure
  throw data_error(fmt::format("stdout: cannot write the result: {}", std::strerror(errno)));
}

// --device: which engines and GPUs the commands may use.

EngineDevices devices(const Common& common) { return common.device == "cpu" ? EngineDevices::cpu : EngineDevices::any; }

std::string check_device_name(const std::string& device) {
  for (const char* name : {"auto", "cpu", "cuda"})
    if (device == name) return "";
  const bool digits = device.size() <= 9 && std::all_of(device.begin() + std::min(device.size(), kGpu.size()),
                                                        device.end(), [](unsigned char c) { return std::isdigit(c); });
  if (device.starts_with(kGpu) && device.size() > kGpu.size() && digits) return "";
  return fmt::format("'{}' is no device; takes auto, cpu, cuda, or cuda:0, cuda:1, ... for one of several GPUs",
                     device);
}

void choose_gpu(const Common& common) {
  if (!common.device.starts_with(kGpu)) return;
  std::string gpu = common.device.substr(kGpu.size());
  if (const char* visible = std::getenv(kVisible); visible != nullptr) {
    const std::vector<std::string> names = split(visible, ',');
    if (const size_t number = std::stoul(gpu); number < names.size())
      gpu = names[number];
    else
      throw usage_error(fmt::format("--device {}: {}={} leaves this process {}, from cuda:0 on", common.device,
                                    kVisible, visible, counted(static_cast<long>(names.size()), "GPU")));
  }
  ::setenv(kVisible, gpu.c_str(), 1);
}

void check_device(const Common& common) {
  if (!common.device.starts_with("cuda")) return;
  const Support cuda = find_engine("cuda").available();
  if (cuda.ok) return;
  const long here = common.device == "cuda" ? 0 : gpus_of_driver();
  throw usage_error(fmt::format(
      "--device {}: {}; {}use --device cpu", common.device, cuda.reason,
      here > 0 ? fmt::format("this machine has {}, from cuda:0 on; ", counted(here, "GPU")) : std::string()));
}

}  // namespace octet::cli

int main(int argc, char** argv) {
  using octet::ExitCode;
  using octet::cli::complain, octet::cli::leave;
  try {
    return leave(octet::cli::run(argc, argv));
  } catch (const octet::Error& error) {
    complain(error.what());
    return leave(error.code());
  } catch (const std::bad_alloc&) {
    complain("out of memory; a smaller batch size (--set train.batch_size=...) may fit");
    return leave(ExitCode::data);
  } catch (const std::filesystem::filesystem_error& error) {
    complain(fmt::format("{}: {}", error.path1().string(), error.code().message()));
    return leave(ExitCode::data);
  } catch (const std::exception& error) {
    complain(fmt::format("internal error: {}", error.what()));
    return leave(ExitCode::promise);
  }
}
