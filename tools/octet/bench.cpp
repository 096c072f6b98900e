// octet bench: what it may be asked. Whole networks are timed by bench_network.cpp, single convolutions (--layers-of)
// by bench_layers.cpp.
#include <memory>

#include "src/common/cores.h"
#include "src/quant/convert.h"
#include "tools/octet/bench_options.h"
#include "tools/octet/commands.h"
#include "tools/octet/engine_flags.h"
#include "tools/octet/target.h"

namespace octet::cli {
namespace {

ExitCode bench(const Common& common, const BenchCommand& command) {
  const int given = !command.checkpoint.empty() + !command.model.empty() + !command.layers_of.empty();
  if (given != 1) throw usage_error("bench needs one of CHECKPOINT, --model NAME and --layers-of NAME");
  if (!command.svg.empty()) require_place_for(command.svg);
  if (command.layers_of.empty()) return bench_network(common, command);
  if (command.sizes.size() > 1) throw usage_error("bench: --layers-of measures at one --size");
  return bench_layers(common, command);
}

}  // namespace

void add_bench(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<BenchCommand>();
  CLI::App* command = app.add_subcommand("bench", "times whole networks, or single convolutions, on random data");
  CLI::Option* checkpoint = command->add_option("CHECKPOINT", options->checkpoint, checkpoint_help());
  command->add_option("--model", options->model, "a network of the zoo, random weights: resnet50, mobilenet_v2, ...");
  CLI::Option* layers_of = command->add_option(
      "--layers-of", options->layers_of,
      "every distinct convolution of a network of the zoo: cuda int8, cudnn int8, cudnn fp16, cutlass int8");
  command->add_option("--size", options->sizes, "input heights and widths for --model, one for --layers-of: 160,224")
      ->delimiter(',')
      ->check(CLI::Range(8, 1024))
      ->excludes(checkpoint);
  const std::vector<std::string_view> schemes = names_in(kActivationSchemes);
  command
      ->add_option(
          "--activation", options->activation,
          "codes of --model's activations (default: affine_u8, or symmetric_s8 where an engine takes no other)")
      ->excludes(checkpoint)
      ->check(CLI::IsMember(std::vector<std::string>(schemes.begin(), schemes.end())));
  const std::vector<std::string_view> sparsities = names_in(kSparsities);
  command->add_option("--sparsity", options->sparsity, "of the random weights of --model and --layers-of")
      ->excludes(checkpoint)
      ->check(CLI::IsMember(std::vector<std::string>(sparsities.begin(), sparsities.end())))
      ->capture_default_str();
  command->add_option("--batch", options->batches, "batch sizes: 1,8")->delimiter(',')->check(CLI::Range(1, 4096));
  command
      ->add_option("--engine", options->engines,
                   "cuda, cudnn, cutlass, cpu, reference; one that cannot run is told, the others are measured")
      ->delimiter(',');
  add_fallback(*command, options->fallback);
  command->add_option("--kernels", options->kernels,
                      "cpu: auto, avx512_vnni, avx2, portable; cuda: auto, separate, fused or part of the names of the "
                      "only ones allowed");
  command->add_option("--threads", options->threads, "0: all cores")->check(CLI::Range(0, kMostThreads));
  command->add_option("--seconds", options->seconds, "of measuring, each; joules are told from 1 s on")
      ->check(CLI::Range(0.01, 600.0));
  command->add_flag("--layers", options->layers, "time every layer too");
  command->add_option(
      "--svg", options->svg,
      "draw images/s over several batches or sizes into this file; of one, or with --layers, its layers' times");
  command->add_option("--save", options->save, "write the random network to this .safetensors file")
      ->excludes(checkpoint);
  for (const char* name :
       {"--activation", "--engine", "--fallback", "--kernels", "--threads", "--seconds", "--layers", "--save"}) {
    layers_of->excludes(command->get_option(name));
  }
  command->callback([&common, &action, options] { action = [&common, options] { return bench(common, *options); }; });
}

}  // namespace octet::cli
