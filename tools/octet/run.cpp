// SPDX-License-Identifier: Apache-2.0
// octet run CHECKPOINT IMAGE...: top-5 with names, through one engine; of a network of segmentation the shares of the
// classes, and with --masks the class of every pixel.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <span>

#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/base/threads.h"
#include "src/data/loader.h"
#include "src/data/transform.h"
#include "src/engine/engine.h"
#include "src/eval/metrics.h"
#include "src/net/checkpoint.h"
#include "src/net/shapes.h"
#include "tools/octet/commands.h"
#include "tools/octet/measured_run.h"
#include "tools/octet/target.h"

namespace octet::cli {
namespace {

struct Options {
  std::string checkpoint, engine = "auto", kernels = "auto", fallback = "none", dump, masks;
  std::vector<std::string> images;
  int threads = 0;
  std::optional<int> top;
};

constexpr int kTop = 5;

/// The classes of one image.
struct Prediction {
  std::string image;
  std::vector<int> classes;           // best first
  std::vector<double> probabilities;  // by class: softmax, or the share of the pixels
};

/// Returns the most probable classes of an image.
Prediction rank(const std::string& image, const std::vector<float>& logits, int top) {
  Prediction result{image, std::vector<int>(logits.size()), {}};
  std::iota(result.classes.begin(), result.classes.end(), 0);
  std::stable_sort(result.classes.begin(), result.classes.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  const double largest = logits[result.classes.front()];
  double sum = 0;
  for (float logit : logits) result.probabilities.push_back(std::exp(logit - largest));
  for (double p : result.probabilities) sum += p;
  for (double& p : result.probabilities) p /= sum;
  result.classes.resize(std::min<size_t>(result.classes.size(), top));
  return result;
}

/// Returns the most frequent classes of an image's pixels; `mask` holds a class below `classes` for each pixel.
Prediction shares(const std::string& image, const std::vector<uint8_t>& mask, int classes, int top) {
  Prediction result{image, std::vector<int>(classes), std::vector<double>(classes)};
  std::iota(result.classes.begin(), result.classes.end(), 0);
  for (const uint8_t c : mask) result.probabilities[c] += 1.0 / static_cast<double>(mask.size());
  std::stable_sort(result.classes.begin(), result.classes.end(),
                   [&](int a, int b) { return result.probabilities[a] > result.probabilities[b]; });
  result.classes.resize(std::min<size_t>(result.classes.size(), top));
  return result;
}

/// Returns the class of each pixel; logits are [pixels, classes].
std::vector<uint8_t> mask_of(const std::vector<float>& logits, size_t classes) {
  std::vector<uint8_t> mask;
  for (size_t begin = 0; begin < logits.size(); begin += classes)
    mask.push_back(static_cast<uint8_t>(arg_max(std::span(logits).subspan(begin, classes))));
  return mask;
}

/// Returns FOLDER/NAME_mask.png, a grey image of each pixel's class at the network's resolution.
std::string mask_file(const std::string& folder, const std::string& image) {
  return (std::filesystem::path(folder) / (std::filesystem::path(image).stem().string() + "_mask.png")).string();
}

std::string class_name(const Int8Graph& graph, int index) {
  return index < static_cast<int>(graph.class_names.size()) ? graph.class_names[index] : fmt::format("class {}", index);
}

std::string text(const Int8Graph& graph, const std::vector<Prediction>& predictions) {
  std::string out;
  const char* share = is_classifier(graph) ? "probability" : "pixels";
  for (const Prediction& p : predictions) {
    TextTable table({{p.image, Align::left}, {share}});
    for (int c : p.classes) table.add_row({class_name(graph, c), percent(p.probabilities[c])});
    out += table.render() + "\n";
  }
  return out;
}

std::string json(const Int8Graph& graph, const std::vector<Prediction>& predictions) {
  nlohmann::json document = nlohmann::json::array();
  const char* share = is_classifier(graph) ? "probability" : "pixels";
  for (const Prediction& p : predictions) {
    nlohmann::json top = nlohmann::json::array();
    for (int c : p.classes) top.push_back({{"class", c}, {"name", class_name(graph, c)}, {share, p.probabilities[c]}});
    document.push_back({{"image", p.image}, {"top", top}});
  }
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Whether the network's only output is logits.
bool gives_answers(const Int8Graph& graph) {
  const Int8Node& output = graph.nodes[graph.outputs.front()];
  constexpr int kMostClasses = 256;  // a pixel of a mask is a byte
  return is_classifier(graph) || (graph.outputs.size() == 1 && output.float_output && output.shape.c <= kMostClasses);
}

/// Returns the shape of the logits; throws Error(usage) for a network that has other outputs.
Shape answers_of(const Int8Graph& graph) {
  if (gives_answers(graph)) return graph.nodes[graph.outputs.front()].shape;
  throw usage_error(
      fmt::format("{} gives {}; a classifier gives one output, float32 [classes, 1, 1]; of other networks --dump FILE "
                  "writes what every node gives",
                  graph.name, outputs_text(graph)));
}

/// Reports the dump of a network without classes.
void print_dump(const Common& common, const Options& options, const Int8Graph& graph) {
  const std::string what = counted(static_cast<long>(options.images.size()), "picture");
  print_result(
      common,
      fmt::format("wrote {}: every node for {}; no classes: it gives {}", options.dump, what, outputs_text(graph)),
      [&] {
        return nlohmann::json{{"dump", options.dump}}.dump(2);
      });
}

/// Refuses --masks for a network that has none, and for images whose masks would have the same name.
void check_masks(const Options& options, const Shape& answers) {
  if (options.masks.empty()) return;
  if (answers.h == 1 && answers.w == 1)
    throw usage_error("--masks: this network has one class for each picture, none for its pixels; leave it out");
  if (!std::filesystem::is_directory(options.masks))
    throw data_error(fmt::format("--masks {}: there is no such folder; make it first", options.masks));
  std::set<std::string> files;
  for (const std::string& image : options.images) {
    if (!files.insert(mask_file(options.masks, image)).second)
      throw usage_error(fmt::format("--masks {}: two pictures' masks would be {}; give them in two calls",
                                    options.masks, mask_file(options.masks, image)));
  }
}

ExitCode run(const Common& common, const Options& options) {
  const Int8Graph graph = open_checkpoint(options.checkpoint).graph;
  const bool only_dump = !options.dump.empty() && options.masks.empty() && !gives_answers(graph);
  const Shape answers = only_dump ? Shape{} : answers_of(graph);
  check_masks(options, answers);
  if (only_dump && options.top)
    throw usage_error("run: --top ranks classes, and this network gives none; leave it out");
  const int top = options.top.value_or(kTop);
  CompileOptions compile;
  compile.threads = options.threads;
  compile.kernels = options.kernels;
  compile.fallback = options.fallback;
  const std::string engine = resolve_engines({options.engine}, devices(common)).front();
  check_fallback("run: ", options.fallback, {engine});
  check_kernels("run: ", options.kernels, {engine});
  const std::unique_ptr<Program> program = find_engine(engine).compile(graph, compile);

  std::vector<Prediction> predictions;
  const OutputBuffers outputs(graph, 1);
  CodeDump dump(graph);  // what tools/verify_checkpoint.py --against reads
  const NodeTap tap = [&dump](int node, const void* data, size_t bytes) { dump.add(node, data, bytes); };
  for (const std::string& path : options.images) {
    std::vector<std::string> notes;
    const Image image = network_picture(graph, path, notes);
    for (const std::string& note : notes) say("note: " + note);
    if (!options.dump.empty()) dump.add_images(image.pixels.data(), 1);
    program->run(image.pixels.data(), 1, outputs.memory(), options.dump.empty() ? nullptr : tap);
    if (only_dump) continue;
    std::vector<float> logits(answers.elements());
    std::memcpy(logits.data(), outputs[0].data(), outputs[0].size());
    if (is_classifier(graph)) {
      predictions.push_back(rank(path, logits, top));
      continue;
    }
    const std::vector<uint8_t> mask = mask_of(logits, answers.c);
    predictions.push_back(shares(path, mask, answers.c, top));
    if (!options.masks.empty())
      write_file_atomically(mask_file(options.masks, path), encode_png({answers.h, answers.w, 1, mask}));
  }
  if (!options.dump.empty()) dump.write(options.dump);
  if (only_dump) {
    print_dump(common, options, graph);
    return ExitCode::ok;
  }
  print_result(common, text(graph, predictions), [&] { return json(graph, predictions); });
  return ExitCode::ok;
}

}  // namespace

void add_run(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("run", "top-5 of pictures (JPEG, PNG, BMP, WebP), or the classes of their pixels");
  command->add_option("CHECKPOINT", options->checkpoint, checkpoint_help())->required();
  command->add_option("IMAGE", options->images, "pictures")->required();
  command->add_option("--engine", options->engine, "auto (the fastest here), cuda, cudnn, cutlass, cpu, reference");
  command->add_option("--kernels", options->kernels,
                      "cpu: auto, avx512_vnni, avx2, portable; cuda: auto, separate, fused or part of kernels' names");
  add_fallback(*command, options->fallback);
  command->add_option("--threads", options->threads, "0: all cores")->check(CLI::Range(0, kMostThreads));
  command->add_option("--top", options->top, "how many classes to print (default: 5)")->check(CLI::Range(1, 1000));
  command->add_option("--dump", options->dump, "write every node's codes to this .safetensors file");
  command->add_option("--masks", options->masks,
                      "segmentation: folder for NAME_mask.png, a grey picture of each pixel's class");
  command->callback([&common, &action, options] { action = [&common, options] { return run(common, *options); }; });
}

}  // namespace octet::cli
