// octet: trains convolutional networks so that they run as int8, and proves that what runs is what was trained.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "src/common/interrupt.h"
#include "src/common/progress.h"
#include "tools/octet/commands.h"

namespace octet::cli {
namespace {

constexpr const char* kFooter =
    "examples:\n"
    "  octet train recipes/small_cnn_fashion_mnist_affine_u8.yaml --out runs/demo\n"
    "  octet train recipes/resnet20_cifar10_int8.yaml --set data.path=/data/cifar10 --resume\n"
    "  octet compare runs/demo            does every engine give the codes that were trained?\n"
    "  octet run runs/demo shirt.png      top-5 with names\n"
    "  octet bench --model resnet50 --batch 1,8\n"
    "exit codes: 0 good, 1 a promise broken, 2 usage or recipe, 3 data or file, 130 interrupted";

/// A flag on the program and on each of its commands, so that it may stand on either side of the command's name.
void add_common(CLI::App& app, Common& common) {
  app.add_option("--set", common.set, "override a recipe key: --set quant.activation=affine_u8")
      ->allow_extra_args(false);
  app.add_option("--out", common.out, "where to write");
  app.add_option("--device", common.device, "auto, cpu or cuda")->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_flag("--resume", common.resume, "go on from the last checkpoint");
  app.add_flag("--quiet", common.quiet, "no progress, errors only");
  app.add_flag("--json", common.json, "one JSON document on stdout");
}

std::string typed(int argc, char** argv) {
  std::string line = "octet";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    line += word.find_first_of(" '\"$\\*") == std::string::npos && !word.empty() ? " " + word : " '" + word + "'";
  }
  return line;
}

ExitCode run(int argc, char** argv) {
  CLI::App app{"octet trains networks so that they run as int8, and proves that what runs is what was trained."};
  Common common;
  common.command_line = typed(argc, argv);
  Action action;
  app.require_subcommand(1);
  app.footer(kFooter);
  app.set_version_flag("--version", "octet " OCTET_VERSION);
#if OCTET_TRAINING
  add_train(app, common, action);
  add_calibrate(app, common, action);
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
  for (CLI::App* command : app.get_subcommands({})) add_common(*command, common);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? ExitCode::ok : ExitCode::usage;
  }
  install_interrupt_handler();
  set_verbosity(common.quiet ? Verbosity::quiet : Verbosity::normal);
  check_device(common);
  return action();
}

}  // namespace

void print_result(const Common& common, const std::string& text, const std::function<std::string()>& json) {
  const std::string out = common.json ? json() : text;
  std::fwrite(out.data(), 1, out.size(), stdout);
  if (out.empty() || out.back() != '\n') std::fputc('\n', stdout);
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) throw data_error("stdout: cannot write the result");
}

}  // namespace octet::cli

int main(int argc, char** argv) {
  try {
    return static_cast<int>(octet::cli::run(argc, argv));
  } catch (const octet::Error& error) {
    fmt::print(stderr, "octet: {}\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "octet: out of memory; a smaller batch size (--set train.batch_size=...) may fit\n");
    return static_cast<int>(octet::ExitCode::data);
  } catch (const std::exception& error) {
    fmt::print(stderr, "octet: internal error: {}\n", error.what());
    return static_cast<int>(octet::ExitCode::promise);
  }
}
