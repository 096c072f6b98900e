// SPDX-License-Identifier: Apache-2.0
// octet run CHECKPOINT IMAGE...: top-5 with names, through one engine; of a network of segmentation the shares of the
// classes, with --masks the class of every pixel and with --out an image of them; of a detector its boxes; of other
// networks the ranges of the outputs, and with --outputs their values.
#include <fmt/format.h>
#include <fmt/ranges.h>

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
#include <utility>

#include "kernels/core/quantize.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/safetensors.h"
#include "src/base/text.h"
#include "src/base/threads.h"
#include "src/data/loader.h"
#include "src/data/transform.h"
#include "src/detect/decode.h"
#include "src/engine/engine.h"
#include "src/eval/metrics.h"
#include "src/net/checkpoint.h"
#include "src/net/shapes.h"
#include "tools/octet/boxes.h"
#include "tools/octet/commands.h"
#include "tools/octet/measured_run.h"
#include "tools/octet/target.h"

namespace octet::cli {
namespace {

struct RunOptions {
  std::string checkpoint, engine = "auto", kernels = "auto", fallback = "none", dump, masks, outputs, out;
  std::vector<std::string> images;
  int threads = 0;
  std::optional<int> top;
  std::optional<double> score;
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

/// Collects what the outputs give for images: their ranges and, to be written, their values as programs take them,
/// float32 [images, C, H, W], or [images, C] of one pixel.
class Outputs {
 public:
  Outputs(const Int8Graph& graph, bool keeps) : graph_(graph), keeps_(keeps), values_(graph.outputs.size()) {}

  void add(const std::string& image, const OutputBuffers& outputs) {
    images_.push_back(image);
    for (size_t o = 0; o < values_.size(); ++o) {
      const std::vector<float> values = channels_first(node(o), outputs[o].data());
      const auto [min, max] = std::minmax_element(values.begin(), values.end());
      ranges_.emplace_back(*min, *max);
      if (keeps_) values_[o].insert(values_[o].end(), values.begin(), values.end());
    }
  }

  void write(const std::string& path) const {
    TensorFile file;
    for (size_t o = 0; o < values_.size(); ++o) {
      std::vector<int64_t> shape = {static_cast<int64_t>(images_.size())};
      for (const int size : sizes(o)) shape.push_back(size);
      file.tensors.emplace(node(o).name, float_tensor(std::move(shape), values_[o].data()));
    }
    write_safetensors(path, file);
  }

  std::string text() const {
    TextTable table({{"image", Align::left}, {"output", Align::left}, {"shape", Align::left}, {"min"}, {"max"}});
    for (size_t i = 0; i < images_.size(); ++i)
      for (size_t o = 0; o < values_.size(); ++o) {
        const auto [min, max] = ranges_[i * values_.size() + o];
        table.add_row({o == 0 ? images_[i] : "", node(o).name, fmt::format("{}", fmt::join(sizes(o), "x")),
                       fmt::format("{:.4g}", min), fmt::format("{:.4g}", max)});
      }
    return table.render();
  }

  std::string json() const {
    nlohmann::json document = nlohmann::json::array();
    for (size_t i = 0; i < images_.size(); ++i) {
      nlohmann::json outputs = nlohmann::json::array();
      for (size_t o = 0; o < values_.size(); ++o) {
        const auto [min, max] = ranges_[i * values_.size() + o];
        outputs.push_back({{"name", node(o).name}, {"shape", sizes(o)}, {"min", min}, {"max", max}});
      }
      document.push_back({{"image", images_[i]}, {"outputs", outputs}});
    }
    return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  }

 private:
  const Int8Node& node(size_t output) const { return graph_.nodes[static_cast<size_t>(graph_.outputs[output])]; }

  /// Returns an image's output [H, W, C], codes or float32, in reals [C, H, W].
  static std::vector<float> channels_first(const Int8Node& node, const uint8_t* from) {
    const auto channels = static_cast<size_t>(node.shape.c);
    std::vector<float> values(static_cast<size_t>(node.shape.elements()));
    const size_t pixels = values.size() / channels;
    for (size_t c = 0; c < channels; ++c)
      for (size_t p = 0; p < pixels; ++p) {
        const size_t at = p * channels + c;
        float& value = values[c * pixels + p];
        if (node.float_output)
          std::memcpy(&value, from + at * sizeof(value), sizeof(value));
        else
          value = dequantize(node.out.is_signed() ? static_cast<int8_t>(from[at]) : from[at], node.out);
      }
    return values;
  }

  std::vector<int> sizes(size_t output) const {
    const Shape& shape = node(output).shape;
    return shape.h == 1 && shape.w == 1 ? std::vector<int>{shape.c} : std::vector<int>{shape.c, shape.h, shape.w};
  }

  const Int8Graph& graph_;
  const bool keeps_;
  std::vector<std::string> images_;
  std::vector<std::pair<float, float>> ranges_;  ///< [images, outputs]: min and max
  std::vector<std::vector<float>> values_;       ///< by output, [images, C, H, W]
};

/// Refuses --masks for a network that has none, --out for one whose pixels' classes are too many to draw, and images
/// whose masks would have the same name.
void check_masks(const RunOptions& options, const Int8Graph& graph) {
  const Int8Node& first = graph.nodes[graph.outputs.front()];
  const bool of_pixels = graph.outputs.size() == 1 && first.float_output && first.shape.h * first.shape.w > 1;
  if (!options.masks.empty() && is_classifier(graph))
    throw usage_error("--masks: this network has one class for each image, none for its pixels; leave it out");
  if (!options.masks.empty() || (!options.out.empty() && !graph.boxes && of_pixels)) {
    try {
      require_masks(graph);
    } catch (const Error& error) {
      throw usage_error(fmt::format("{}; --outputs FILE.safetensors writes the values", error.what()));
    }
  }
  if (options.masks.empty()) return;
  if (!std::filesystem::is_directory(options.masks))
    throw data_error(fmt::format("--masks {}: there is no such folder; make it first", options.masks));
  std::set<std::string> files;
  for (const std::string& image : options.images) {
    if (!files.insert(mask_file(options.masks, image)).second)
      throw usage_error(fmt::format("--masks {}: two images' masks would be {}; give them in two calls", options.masks,
                                    mask_file(options.masks, image)));
  }
}

ExitCode run(const Common& common, const RunOptions& options) {
  const Int8Graph graph = open_checkpoint(options.checkpoint).graph;
  const bool pixels = !graph.boxes && gives_masks(graph), answering = pixels || (!graph.boxes && is_classifier(graph));
  const Shape answers = answering ? graph.nodes[graph.outputs.front()].shape : Shape{};
  check_masks(options, graph);
  if (!answering && options.top)
    throw usage_error("run: --top ranks classes, and this network gives none; leave it out");
  if (!graph.boxes && (options.score || (!options.out.empty() && !pixels))) require_boxes(graph);
  const DrawnImages drawn_images(options.out, pixels ? "_classes.png" : "_boxes.png", options.images);
  FoundBoxes boxes(graph, options.score, drawn_images);
  for (const std::string& file : {options.dump, options.outputs})
    if (!file.empty()) require_place_for(file);
  if (!options.outputs.empty() && !options.outputs.ends_with(".safetensors"))
    throw usage_error(fmt::format("--outputs {}: name a file that ends in .safetensors", options.outputs));
  if (!options.outputs.empty() && options.outputs == options.dump)
    throw usage_error("--outputs and --dump name the same file: one would overwrite the other");
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
  const OutputBuffers buffers(graph, 1);
  Outputs outputs(graph, !options.outputs.empty());
  CodeDump dump(graph);  // what tools/verify_checkpoint.py --against reads
  const NodeTap tap = [&dump](int node, const void* data, size_t bytes) { dump.add(node, data, bytes); };
  for (const std::string& path : options.images) {
    std::vector<std::string> notes;
    const Image whole = image_for(graph, path, notes);
    const Image image = evaluation_image(whole, evaluation_transform(graph.input_shape(), graph.preprocessing));
    for (const std::string& note : notes) say("note: " + note);
    if (!options.dump.empty()) dump.add_images(image.pixels.data(), 1);
    program->run(image.pixels.data(), 1, buffers.memory(), options.dump.empty() ? nullptr : tap);
    if (!answering || !options.outputs.empty()) outputs.add(path, buffers);
    if (graph.boxes) boxes.add(path, whole, buffers.all());
    if (!answering) continue;
    std::vector<float> logits(answers.elements());
    std::memcpy(logits.data(), buffers[0].data(), buffers[0].size());
    if (is_classifier(graph)) {
      predictions.push_back(rank(path, logits, top));
      continue;
    }
    const Image mask{answers.h, answers.w, 1, mask_of(logits, answers.c)};
    predictions.push_back(shares(path, mask.pixels, answers.c, top));
    if (!options.masks.empty()) write_file_atomically(mask_file(options.masks, path), encode_png(mask));
    if (drawn_images.wanted())
      drawn_images.write(
          path, draw_classes(whole, decode_mask(graph, logits.data(), {whole.height, whole.width}), graph.class_names));
  }
  const std::string count = counted(static_cast<long>(options.images.size()), "image");
  if (!options.dump.empty()) {
    dump.write(options.dump);
    say(fmt::format("wrote {}: what every node gives for {}", options.dump, count));
  }
  if (!options.outputs.empty()) {
    outputs.write(options.outputs);
    say(fmt::format("wrote {}: the outputs for {}, float32", options.outputs, count));
  } else if (!answering && !graph.boxes) {
    say("--outputs FILE.safetensors writes the values");
  }
  if (graph.boxes)
    print_result(common, boxes.text(), [&] { return boxes.json(); });
  else
    print_result(common, answering ? text(graph, predictions) : outputs.text(),
                 [&] { return answering ? json(graph, predictions) : outputs.json(); });
  return ExitCode::ok;
}

}  // namespace

void add_run(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command =
      app.add_subcommand("run", "top-5 of images (JPEG, PNG, BMP, WebP), or classes of their pixels, boxes, outputs");
  command->add_option("CHECKPOINT", options->checkpoint, checkpoint_help())->required();
  command->add_option("IMAGE", options->images, "images")->required();
  command->add_option("--engine", options->engine, "auto (the fastest here), cuda, cudnn, cutlass, cpu, reference");
  command->add_option(
      "--kernels", options->kernels,
      "cpu: auto or a path that octet doctor lists; cuda: auto, separate, fused or part of kernels' names");
  add_fallback(*command, options->fallback);
  command->add_option("--threads", options->threads, "0: all cores")->check(CLI::Range(0, kMostThreads));
  command->add_option("--top", options->top, "how many classes to print (default: 5)")->check(CLI::Range(1, 1000));
  command
      ->add_option("--score", options->score, "boxes: those of a lower score are left out (default: the checkpoint's)")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--out", options->out,
                      "boxes, segmentation: write the image with boxes drawn, or under its classes' colours, to this "
                      ".png, of several to this folder as NAME_boxes.png, NAME_classes.png");
  command->add_option("--dump", options->dump, "write every node's codes to this .safetensors file");
  command->add_option("--outputs", options->outputs,
                      "write the outputs to this .safetensors file: float32 [images, C, H, W] or [images, C]");
  command->add_option("--masks", options->masks,
                      "segmentation: folder for NAME_mask.png, a grey image of each pixel's class");
  command->callback([&common, &action, options] { action = [&common, options] { return run(common, *options); }; });
}

}  // namespace octet::cli
