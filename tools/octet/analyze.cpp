// SPDX-License-Identifier: Apache-2.0
// octet analyze RECIPE|RUN|NETWORK: which layers quantization costs the most, as a table, JSON and a page.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/eval/evaluate.h"
#include "src/recipe/run.h"
#include "src/report/html.h"
#include "src/train/model/threads.h"
#include "src/train/repair/quantization_noise.h"
#include "tools/octet/commands.h"
#include "tools/octet/measured_run.h"
#include "tools/octet/quantize.h"
#include "tools/octet/target.h"
#include "trainers/gpu.h"
#include "trainers/run/run.h"

namespace octet::cli {
namespace {

constexpr const char* kSensitivityLegend =
    "dB: 10 log10(signal / error) of the logits with this layer alone quantized (the worst first), with all but this "
    "one, and of its own output and channels with all; weights, codes: bits";

/// What was measured, and on what.
struct MeasuredLayers {
  const Sensitivity& result;
  size_t images = 0;  ///< number of validation images
  Labels labels = Labels::image;

  /// Names what is classified: "256 validation images", "the pixels of 1 validation image".
  std::string answers() const {
    return (labels == Labels::pixels ? "the pixels of " : "") + counted(static_cast<long>(images), "validation image");
  }
};

using Value = std::function<double(const LayerSensitivity&)>;

double alone(const LayerSensitivity& layer) { return layer.alone.sqnr_db; }
double all_but(const LayerSensitivity& layer) { return layer.all_but.sqnr_db; }
double output(const LayerSensitivity& layer) { return layer.sqnr_db; }

/// Returns the layers sorted by the value, the smallest first.
std::vector<LayerSensitivity> sorted(std::vector<LayerSensitivity> layers, const Value& value) {
  std::stable_sort(layers.begin(), layers.end(),
                   [&](const LayerSensitivity& a, const LayerSensitivity& b) { return value(a) < value(b); });
  return layers;
}

std::string bits(int count) { return count == 0 ? "" : std::to_string(count); }

/// Draws a bar for each layer. The SQNR is that of `of`; the axis starts at `lo`.
std::string bars(const std::vector<LayerSensitivity>& layers, const Value& value, const std::string& of, double lo,
                 const std::string& caption) {
  BarChart chart{
      .title = fmt::format("SQNR of {} by layer", of), .lo = lo, .axis_label = fmt::format("SQNR of {}, dB", of)};
  for (const LayerSensitivity& layer : layers)
    chart.bars.push_back(
        {.label = layer.name, .value = value(layer), .tooltip = fmt::format("{} ({})", layer.name, layer.op)});
  return decibel_figures(chart, caption);
}

/// Returns where the axis of falling values starts: a little below the smallest if the values differ by a few dB only,
/// so that the differences are visible; else at 0.
double start_of_axis(const std::vector<LayerSensitivity>& falling, const Value& value) {
  if (falling.empty()) return 0;
  const double max = value(falling.front()), min = value(falling.back());
  return std::isfinite(max) && min > max / 2 ? 5 * std::floor(min / 5) : 0;
}

std::vector<Card> cards(const MeasuredLayers& measured) {
  const LogitsLoss& all = measured.result.all;
  std::vector<Card> cards = {
      {Card::Kind::usual, "logits", decibels(all.sqnr_db), "signal to quantization noise, all layers quantized"},
      {Card::Kind::usual, "same class", percent(all.agreement, 1),
       fmt::format("the float network's on {}", measured.answers())}};
  const auto& layers = measured.result.layers;
  const auto worst =
      std::min_element(layers.begin(), layers.end(), [](const auto& a, const auto& b) { return alone(a) < alone(b); });
  if (worst != layers.end())
    cards.push_back({Card::Kind::plain, "worst layer", decibels(alone(*worst)),
                     fmt::format("logits with {} alone quantized", worst->name)});
  return cards;
}

/// Returns the table of all layers, the one that costs the most alone first.
TextTable sensitivity_table(const Sensitivity& result) {
  TextTable table({{"layer", Align::left},
                   {"op", Align::left},
                   {"weights"},
                   {"codes"},
                   {"alone dB"},
                   {"same class"},
                   {"all but it dB"},
                   {"same class"},
                   {"output dB"},
                   {"worst channels", Align::left}});
  for (const LayerSensitivity& layer : sorted(result.layers, alone)) {
    std::string worst;
    for (const ChannelLoss& c : layer.worst)
      worst += fmt::format("{}{}: {}", worst.empty() ? "" : ", ", c.channel, decibels(c.sqnr_db, ""));
    table.add_row({layer.name, layer.op, bits(layer.weight_bits), bits(layer.activation_bits),
                   decibels(layer.alone.sqnr_db, ""), percent(layer.alone.agreement, 1),
                   decibels(layer.all_but.sqnr_db, ""), percent(layer.all_but.agreement, 1),
                   decibels(layer.sqnr_db, ""), worst});
  }
  return table;
}

std::string analyze_page(const MeasuredLayers& measured, const std::string& title) {
  const Sensitivity& result = measured.result;
  std::vector<LayerSensitivity> gains = sorted(result.layers, all_but);
  std::reverse(gains.begin(), gains.end());
  const std::string charts =
      bars(sorted(result.layers, alone), alone, "the logits", 0,
           "<b>One layer quantized</b>, no other: the layer that costs the most first") +
      bars(
          gains, all_but, "the logits", start_of_axis(gains, all_but),
          fmt::format("<b>All layers but one quantized</b>: the layer that gives back the most first; with all of them "
                      "it is {}",
                      decibels(result.all.sqnr_db))) +
      bars(result.layers, output, "the output", 0,
           "<b>Each layer's own output</b> with all layers quantized, in the order of the network");
  const std::string sections =
      html_section("sensitivity", "Sensitivity",
                   "<p>Signal to quantization noise (SQNR) in dB: the shorter a bar, the more is lost; 6 dB are one "
                   "bit.</p>\n<div class=\"figures\">\n" +
                       charts + "</div>\n") +
      html_section("layers", "Layers",
                   html_table(sensitivity_table(result)) +
                       fmt::format("<p class=\"note\">{}</p>\n", html_escape(kSensitivityLegend)));
  return html_cards_page(title, "what quantization costs layer by layer, measured by octet", cards(measured), sections);
}

struct AnalyzeOptions {
  std::string target;
  int images = 0;  ///< 0: not given
  std::optional<int> channels;
  QuantizeOptions network;  ///< of a network file, with the page's name for all
};

constexpr int kImages = 256, kWorstChannels = 3;

std::string text(const MeasuredLayers& measured) {
  const LogitsLoss& all = measured.result.all;
  return fmt::format("{}\nall layers quantized: logits {}, the float network's class on {} of {}\n{}\n",
                     sensitivity_table(measured.result).render(), decibels(all.sqnr_db), percent(all.agreement, 1),
                     measured.answers(), kSensitivityLegend);
}

std::string json(const Sensitivity& result, size_t images) {
  using Json = nlohmann::ordered_json;  // writes what is infinite as null
  const auto loss = [](const LogitsLoss& l) { return Json{{"sqnr_db", l.sqnr_db}, {"same_class", l.agreement}}; };
  Json layers = Json::array();
  for (const LayerSensitivity& layer : result.layers) {
    Json worst = Json::array();
    for (const ChannelLoss& c : layer.worst) worst.push_back({{"channel", c.channel}, {"sqnr_db", c.sqnr_db}});
    layers.push_back({{"layer", layer.name},
                      {"op", layer.op},
                      {"weight_bits", layer.weight_bits},
                      {"activation_bits", layer.activation_bits},
                      {"alone", loss(layer.alone)},
                      {"all_but", loss(layer.all_but)},
                      {"output_sqnr_db", layer.sqnr_db},
                      {"worst_channels", worst}});
  }
  return Json{{"validation_images", images}, {"all", loss(result.all)}, {"layers", layers}}.dump(
      2, ' ', false, Json::error_handler_t::replace);
}

ExitCode analyze(const Common& common, const AnalyzeOptions& options, bool network_options) {
  const std::string& html = options.network.html;
  if (is_network("analyze", common, options.target, options.network, network_options)) {
    if (options.channels) throw usage_error("analyze: --channels is for a recipe or run; leave it out");
    QuantizeOptions network = options.network;
    network.request.network = options.target;
    if (options.images > 0) network.request.limit = options.images;
    return analyze_network(common, network);
  }
  if (!html.empty()) require_place_for(html);
  const bool is_run = std::filesystem::is_directory(options.target);
  const RunDirectory directory = is_run ? run_directory(options.target) : RunDirectory{};
  const Recipe recipe = is_run ? recipe_of(directory, common.set) : read_given_recipe(options.target, common.set);
  require_apart(options.target, recipe, {{"--html", html}});
  require_weights("analyze", options.target, recipe);
  const Run run = open_run(recipe, directory, choose_device(common.device));
  const OwnCores own_cores(run.device.is_cpu());
  say(fmt::format("device: {}", describe_device(run.device)));
  QuantizedModel model = is_run ? load_quantized(run) : make_quantized(run, starting_weights(run));
  if (!is_run) calibrate_as_recipe(model, run);
  const std::vector<at::Tensor> batches = validation_inputs(run, options.images > 0 ? options.images : kImages);
  size_t images = 0;
  for (const at::Tensor& batch : batches) images += static_cast<size_t>(batch.size(0));
  std::unique_ptr<Progress> progress;
  const Sensitivity result = sensitivity(
      model, batches, static_cast<size_t>(options.channels.value_or(kWorstChannels)), [&](size_t done, size_t all) {
        if (!progress) progress = std::make_unique<Progress>("analyze", static_cast<long>(all), "layers");
        progress->update(static_cast<long>(done));
        throw_if_interrupted();
      });
  progress.reset();
  const MeasuredLayers measured{result, images, run.data.task().labels};
  print_result(common, text(measured), [&] { return json(result, images); });
  if (!html.empty()) write_file_atomically(html, analyze_page(measured, options.target));
  return ExitCode::ok;
}

}  // namespace

void add_analyze(CLI::App& app, const Common& common, Action& action) {
  auto options = std::make_shared<AnalyzeOptions>();
  CLI::App* command =
      app.add_subcommand("analyze", "what quantization costs layer by layer, each alone and all but each");
  command
      ->add_option("RECIPE", options->target,
                   "a recipe with model.weights, a run directory, or a network as octet quantize takes it")
      ->required();
  QuantizeOptions& network = options->network;
  add_images(*command, options->images, network.request.images,
             "of a recipe or run: so many validation images (default: 256); of a network: where its images are");
  command->add_option("--channels", options->channels, "of each layer name so many of the worst (default: 3)")
      ->check(CLI::Range(0, 10000));
  command->add_option("--html", network.html, "write a page of it into this file: bars by layer, and the table");
  CLI::App* group = command->add_option_group("of a network");
  add_network_options(*group, network);
  command->callback([&common, &action, options, group] {
    action = [&common, options, given = group->count_all() > 0] {
      return explain_failures([&] { return analyze(common, *options, given); });
    };
  });
}

}  // namespace octet::cli
