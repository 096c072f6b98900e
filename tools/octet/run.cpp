// octet run CHECKPOINT IMAGE...: top-5 with names, through one engine.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "src/common/text_table.h"
#include "src/data/loader.h"
#include "src/engine/engine.h"
#include "src/graph/code_dump.h"
#include "tools/octet/commands.h"
#include "tools/octet/engine_flags.h"
#include "tools/octet/target.h"

namespace octet::cli {
namespace {

struct Options {
  std::string checkpoint, engine = "auto", kernels = "auto", fallback = "none", dump;
  std::vector<std::string> images;
  int threads = 0, top = 5;
};

struct Prediction {
  std::string image;
  std::vector<int> classes;           // best first
  std::vector<double> probabilities;  // softmax, by class
};

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

std::string class_name(const Int8Graph& graph, int index) {
  return index < static_cast<int>(graph.class_names.size()) ? graph.class_names[index] : fmt::format("class {}", index);
}

std::string text(const Int8Graph& graph, const std::vector<Prediction>& predictions) {
  std::string out;
  for (const Prediction& p : predictions) {
    TextTable table({{p.image, Align::left}, {"probability"}});
    for (int c : p.classes) table.add_row({class_name(graph, c), percent(p.probabilities[c])});
    out += table.render() + "\n";
  }
  return out;
}

std::string json(const Int8Graph& graph, const std::vector<Prediction>& predictions) {
  nlohmann::json document = nlohmann::json::array();
  for (const Prediction& p : predictions) {
    nlohmann::json top = nlohmann::json::array();
    for (int c : p.classes)
      top.push_back({{"class", c}, {"name", class_name(graph, c)}, {"probability", p.probabilities[c]}});
    document.push_back({{"image", p.image}, {"top", top}});
  }
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

ExitCode run(const Common& common, const Options& options) {
  const Int8Graph graph = open_checkpoint(options.checkpoint).graph;
  const int classes = graph.classes();
  CompileOptions compile;
  compile.threads = options.threads;
  compile.kernels = options.kernels;
  compile.fallback = options.fallback;
  const std::string engine = resolve_engines({options.engine}, devices(common)).front();
  check_fallback("run: ", options.fallback, {engine});
  check_kernels("run: ", options.kernels, {engine});
  const std::unique_ptr<Program> program = find_engine(engine).compile(graph, compile);
  const Transform transform = transform_of(graph);

  std::vector<Prediction> predictions;
  CodeDump dump(graph);  // what tools/verify_checkpoint.py --against reads
  const NodeTap tap = [&dump](int node, const void* data, size_t bytes) { dump.add(node, data, bytes); };
  for (const std::string& path : options.images) {
    const Image image = fit(read_image(path, graph.input_shape().c), transform, path);
    std::vector<float> logits(classes);
    if (!options.dump.empty()) dump.add_images(image.pixels.data(), 1);
    program->run(image.pixels.data(), 1, logits.data(), options.dump.empty() ? nullptr : tap);
    predictions.push_back(rank(path, logits, options.top));
  }
  if (!options.dump.empty()) dump.write(options.dump);
  print_result(common, text(graph, predictions), [&] { return json(graph, predictions); });
  return ExitCode::ok;
}

}  // namespace

void add_run(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "top-5 of pictures (JPEG, PNG)");
  command->add_option("CHECKPOINT", options->checkpoint, "an int8.safetensors or a run directory")->required();
  command->add_option("IMAGE", options->images, "pictures")->required();
  command->add_option("--engine", options->engine, "auto (the fastest here), cuda, cudnn, cpu, reference");
  command->add_option("--kernels", options->kernels,
                      "cpu: auto, avx512_vnni, avx2, portable; cuda: auto or part of kernels' names");
  add_fallback(*command, options->fallback);
  command->add_option("--threads", options->threads, "0: all cores")->check(CLI::Range(0, 1024));
  command->add_option("--top", options->top, "how many classes to print")->check(CLI::Range(1, 1000));
  command->add_option("--dump", options->dump, "write every node's codes to this .safetensors file");
  command->callback([&common, &action, options] { action = [&common, options] { return run(common, *options); }; });
}

}  // namespace octet::cli
