// SPDX-License-Identifier: Apache-2.0
// Implements include/octet/training.hpp with the pipeline. Octet's own types do not appear in that interface.
#include <octet/training.hpp>

#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/engine/engine.h"
#include "src/net/checkpoint.h"
#include "src/net/onnx/onnx.h"
#include "src/recipe/run.h"
#include "trainers/gpu.h"
#include "trainers/run/pipeline.h"
#include "trainers/run/quantize.h"

namespace octet::training {
namespace {

/// Replaces the program's flags in a message by the members that stand for them in the library.
std::string by_members(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kMembers[] = {{"--resume", "Options::resume"},
                                                                        {"--out", "Options::directory"},
                                                                        {"--set", "Options::set"},
                                                                        {"--device", "Options::device"},
                                                                        {"--profile", "profile"}};
  for (const auto& [flag, member] : kMembers) {
    for (size_t at = text.find(flag); at != std::string::npos; at = text.find(flag, at + 1)) {
      const size_t end = at + flag.size();
      const bool longer =
          end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '-');
      if (!longer) text.replace(at, flag.size(), member);  // "--outputs" is not "--out"
    }
  }
  return text;
}

/// Replaces the flags of `octet quantize` by the members of QuantizeOptions, which have their names: "--image-size" by
/// "image_size".
std::string by_quantize_members(std::string text) {
  const auto small = [&](size_t at) { return at < text.size() && text[at] >= 'a' && text[at] <= 'z'; };
  for (size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 1)) {
    if (!small(at + 2)) continue;
    text.erase(at, 2);
    for (; small(at) || (small(at + 1) && text[at] == '-'); ++at)
      if (text[at] == '-') text[at] = '_';
  }
  return text;
}

/// Runs the work of a function and converts octet's errors to the library's.
template <typename Work>
auto translated(const Work& work, std::string (*members)(std::string) = by_members) try {
  return explain_failures(work);
} catch (const octet::Error& error) {
  throw Error(static_cast<Status>(error.code()), members(printable_lines(error.what())));
}

void begin(bool quiet, const std::string& device) {
  forget_interrupt();
  set_verbosity(quiet ? Verbosity::quiet : Verbosity::normal);
  if (device != "auto" && device != "cpu" && device != "cuda")
    throw usage_error(fmt::format("device '{}': takes auto, cpu, cuda", device));
}

Epoch epoch_of(const EpochMetrics& metrics) {
  return {.phase = metrics.phase,
          .epoch = metrics.epoch,
          .train_loss = metrics.train_loss,
          .validation_loss = metrics.validation_loss,
          .validation_top1 = metrics.validation_top1};
}

training::Row row_of(const octet::Row& row) {
  return {.name = row.evaluation.name,
          .top1 = row.evaluation.top1,
          .images = static_cast<long>(row.evaluation.images),
          .bytes = row.bytes,
          .differing = row.differing,
          .per_second = row.evaluation.images_per_second};
}

}  // namespace

Result train(const std::string& recipe_file, const Options& options) {
  return translated([&] {
    begin(options.quiet, options.device);
    const Recipe recipe = read_given_recipe(recipe_file, options.set);
    if (options.resume && options.directory.empty())
      throw usage_error("resume: name the run to go on with in Options::directory");
    const RunDirectory directory = options.directory.empty()
                                       ? new_run_directory("runs", std::filesystem::path(recipe_file).stem().string())
                                       : RunDirectory{options.directory};
    RunStart start;
    start.command = fmt::format("octet::training::train {}", shell_word(recipe_file));
    start.machine = machine_model();
    if (recipe.data.decode == Decoding::gpu) take_all_queues();
    start.device = choose_device(options.device);
    start.resume = options.resume;
    if (options.epoch_done)
      start.epoch_done = [&](const EpochMetrics& metrics) { options.epoch_done(epoch_of(metrics)); };
    const std::optional<Report> report = octet::train(recipe, directory, start);
    Result result{directory.root, directory.int8(recipe.export_.file), directory.report_html(), {}};
    for (const octet::Row& row : report->rows) result.rows.push_back(row_of(row));
    return result;
  });
}

Quantized quantize(const std::string& network, const QuantizeOptions& options) {
  const auto work = [&] {
    begin(options.quiet, options.device);
    octet::QuantizeOptions all{.request = {.network = network,
                                           .weights = options.weights,
                                           .classes = options.classes,
                                           .image_size = options.image_size,
                                           .outputs = options.outputs,
                                           .images = options.images,
                                           .tensors = options.tensors,
                                           .inputs = options.inputs,
                                           .limit = options.limit,
                                           .seed = options.seed,
                                           .threads = options.threads},
                               .method = options.method,
                               .percentile = options.percentile,
                               .repair = options.repair,
                               .activation = options.activation,
                               .image = {.preset = options.preset,
                                         .fit = options.fit,
                                         .order = options.order,
                                         .orientation = options.orientation,
                                         .mean = options.mean,
                                         .std = options.std,
                                         .scale = options.scale,
                                         .resize = options.resize},
                               .classes_file = options.classes_file,
                               .out = options.out,
                               .onnx = options.onnx,
                               .force = options.force};
    if (!options.profile.empty()) all.profile = options.profile;
    const octet::Quantized made = quantize_files(all, options.device);
    if (made.comparison.broken()) throw promise_error(fmt::format("{}: {}", all.out, verdict(made.comparison)));
    Quantized result{
        all.out, {}, made.repairs.empty() ? "" : made.repairs[made.repaired].name, made.comparison.codes()};
    for (const OutputError& o : made.outputs) result.outputs.push_back({o.name, o.sqnr_db, o.lost, o.agreement});
    return result;
  };
  return translated(work, by_quantize_members);
}

void stop() noexcept { interrupt(); }

void export_onnx(const std::string& checkpoint, const std::string& file, const std::string& profile) {
  translated([&] {
    const Int8Graph graph = read_checkpoint(checkpoint);
    write_file_atomically(file, write_qdq(graph, {.profile = value_named(kOnnxProfiles, profile, "profile")}));
  });
}

}  // namespace octet::training
