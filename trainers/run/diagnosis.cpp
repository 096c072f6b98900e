// SPDX-License-Identifier: Apache-2.0
// Why a quantized network answers worse than its float network: the layers that lose it, and the keys that may help.
#include <ATen/TensorOperators.h>
#include <ATen/ops/logical_or.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "src/base/names.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/quant/equalize.h"
#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "src/train/qat/fake_quantize.h"
#include "src/train/repair/output_error.h"
#include "trainers/run/advice.h"
#include "trainers/run/measure.h"

namespace octet {
namespace {

constexpr int kDiagnosed = 64;
constexpr int kAlone = 8;             // layers that are measured alone
constexpr size_t kNamed = 3;          // of these
constexpr double kWorthNaming = 0.1;  // of what the worst of them loses: what loses less is not named
constexpr double kMuch = 0.01;        // of a layer's values clipped, or of its weights' energy lost
constexpr double kFewCodes = 0.1;     // of an edge's codes that its values take
constexpr double kRight = 0.01;       // of the outputs lost: the codes compute what the float weights do

/// What quantization does to one layer.
struct Fault {
  std::string layer, match;  ///< match: its name in quant.layers
  double lost = 0;           ///< of the outputs, with this layer alone quantized
  double clipped = 0;        ///< share of the values that lie outside the codes
  double used = 1;           ///< share of the codes between the 0.1 % smallest and largest values
  double rounded = 0;        ///< noise / signal of its weights
  int weight_bits = 0, activation_bits = 0;
  QParams codes;

  bool clips() const { return clipped > kMuch; }
  bool is_too_wide() const { return used < kFewCodes; }
  bool rounds() const { return rounded > kMuch; }
  double at(int code) const { return (code - codes.zero_point) * static_cast<double>(codes.scale); }
  std::string why() const {
    std::vector<std::string> reasons;
    if (clips())
      reasons.push_back(fmt::format("codes from {} to {} clip {} of its values", decimal(at(codes.quant_min)),
                                    decimal(at(codes.quant_max)), percent(clipped)));
    if (is_too_wide()) reasons.push_back(fmt::format("its values take {} of its codes", percent(used)));
    if (rounds()) reasons.push_back(fmt::format("weights of {} bits lose {}", weight_bits, percent(rounded)));
    return reasons.empty() ? "" : fmt::format(" ({})", fmt::join(reasons, ", "));
  }
};

/// Measures the edge and the weights of a node. y: what it gives in the float network.
Fault fault_of(const QuantizedModel& model, int n, const at::Tensor& y) {
  const Prepared& prepared = model.prepared();
  const Node& node = prepared.graph.nodes[n];
  Fault fault{.layer = node.name,
              .match = node.op == Op::requantize ? prepared.graph.nodes[node.inputs[0]].name : node.name,
              .weight_bits = prepared.bits.weight_bits[n],
              .activation_bits = prepared.bits.activation_bits[n]};
  if (prepared.has_edge(n)) {
    fault.codes = model.edges()[n];
    const double lo = fault.at(fault.codes.quant_min), hi = fault.at(fault.codes.quant_max);
    const double half = fault.codes.scale / 2;  // what rounds to the last code is not clipped
    fault.clipped = at::logical_or(y<lo - half, y> hi + half).to(at::kFloat).mean().item<double>();
    const at::Tensor sorted = std::get<0>(y.flatten().sort());
    const int64_t rest = sorted.numel() / 1000;
    const double span = (sorted[sorted.numel() - 1 - rest] - sorted[rest]).item<double>();
    fault.used = std::min(1.0, span / (hi - lo));
  }
  if (has_weight(node.op)) {
    const at::Tensor weight = model.used_weights().at(node.name + ".weight").detach();
    const at::Tensor rounded =
        fake_quantize_weight(weight, model.weight_scales().at(node.name), prepared.weight_codes(n));
    fault.rounded = ((weight - rounded).square().sum() / weight.square().sum()).item<double>();
  }
  return fault;
}

/// Returns the layers that lose most alone, the worst first.
std::vector<Fault> faults_of(QuantizedModel& model, const NetworkCosts& costs, const at::Tensor& x) {
  std::vector<LayerCost> worst;
  for (const LayerCost& layer : costs.layers)
    if (layer.alone_lost) worst.push_back(layer);
  std::stable_sort(worst.begin(), worst.end(),
                   [](const auto& a, const auto& b) { return *a.alone_lost > *b.alone_lost; });
  std::vector<Fault> faults;
  const std::vector<Node>& nodes = model.prepared().graph.nodes;
  model.forward_partly(x, std::vector<bool>(nodes.size(), false), [&](int n, const at::Tensor& y) {
    const auto layer = std::find_if(worst.begin(), worst.end(), [&](const auto& w) { return w.name == nodes[n].name; });
    if (layer == worst.end() || static_cast<size_t>(layer - worst.begin()) >= kNamed) return;
    if (*layer->alone_lost < kWorthNaming * *worst.front().alone_lost) return;
    faults.push_back(fault_of(model, n, y));
    faults.back().lost = *layer->alone_lost;
  });
  std::stable_sort(faults.begin(), faults.end(), [](const auto& a, const auto& b) { return a.lost > b.lost; });
  return faults;
}

/// Returns what the recipe has tried.
std::string tried(const Recipe& recipe, const QatStart& start) {
  const CalibrateRecipe& c = recipe.calibrate;
  std::string text = fmt::format("ranges by calibrate.method {}", name_or_auto(kCalibrationMethods, c.method));
  for (const auto& [name, is_tried] :
       {std::pair("equalize", c.equalize), std::pair("channel_scales", c.channel_scales == ScaleChannels::on),
        std::pair("bias_correction", c.bias_correction), std::pair("rounding", c.rounding != WeightRounding::nearest),
        std::pair("distill_steps", c.distill_steps > 0)})
    if (is_tried) text += fmt::format(", calibrate.{}", name);
  if (recipe.qat.epochs > 0)
    text += fmt::format(", QAT of {} with quant.scales {}{}{}", counted(recipe.qat.epochs, "epoch"),
                        recipe.quant.scales ? "" : "auto: ", name_in(kEdgeScales, start.scales),
                        start.froze ? " and qat.freeze_batch_norm auto: 0" : "");
  return text;
}

/// Returns keys with the values that may help, those that are about the named layers first.
std::vector<std::string> cures(const Run& run, const QatStart& start, const std::vector<Fault>& faults, double lost) {
  const Recipe& recipe = run.recipe;
  const bool trained = recipe.qat.epochs > 0;
  std::vector<std::string> keys;
  const auto any = [&](const auto& is) { return std::any_of(faults.begin(), faults.end(), is); };
  const bool ranges = any([](const Fault& f) { return f.clips() || f.is_too_wide(); });
  const bool weights = any([](const Fault& f) { return f.rounds(); });
  if (trained && lost < kRight)
    keys.push_back(
        fmt::format("qat.learning_rate: {:g} (a third: training moved the weights, the codes do what they say)",
                    qat_rate(run).rate / 3));
  if (ranges && recipe.calibrate.method) keys.push_back("calibrate.method: auto");
  if (start.froze && !start.ruined && (ranges || lost >= kRight))
    keys.push_back("qat.freeze_batch_norm: 0.5 (BatchNorm's running statistics may not be those of the images)");
  else if (!start.froze && ranges && trained && recipe.quant.scales == EdgeScales::fixed && may_observe(run))
    keys.push_back("quant.scales: observed");
  if (weights && recipe.quant.weight_granularity == Granularity::per_tensor)
    keys.push_back("quant.weight_granularity: per_channel");
  if (weights && !trained && recipe.quant.weight_calibrator == WeightCalibrator::minmax)
    keys.push_back("quant.weight_calibrator: mse");
  std::string wider;
  for (const Fault& fault : faults) {
    std::string bits;
    if (fault.rounds() && fault.weight_bits < 8) bits += ", weight_bits: 8";
    if (!fault.rounds() && fault.activation_bits > 0 && fault.activation_bits < 8) bits += ", activation_bits: 8";
    if (!bits.empty()) wider += fmt::format("{}{{match: \"{}\"{}}}", wider.empty() ? "" : ", ", fault.match, bits);
  }
  if (!wider.empty()) keys.push_back(fmt::format("quant.layers: [{}]", wider));
  const Graph fused = fuse(run.graph);
  const bool biases = std::none_of(fused.nodes.begin(), fused.nodes.end(),
                                   [](const Node& node) { return has_weight(node.op) && bias_name(node).empty(); });
  const char* alone =
      trained || recipe.calibrate.bias_correction || !biases ? "" : " or calibrate.bias_correction: true";
  keys.push_back(trained ? fmt::format("qat.epochs: more than {}", recipe.qat.epochs)
                         : fmt::format("qat.epochs: 3 or more{}", alone));
  return keys;
}

}  // namespace

std::string diagnose(const Run& run, QuantizedModel& model, const QatStart& start) try {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  const std::vector<at::Tensor> x = validation_inputs(run, kDiagnosed);
  Progress progress("layers alone", kAlone, "layers");
  const NetworkCosts costs = network_costs(model, model, nullptr, x, kAlone, [&](int layer) {
    progress.update(layer + 1);
    throw_if_interrupted();
  });
  const double lost = mean_lost(costs.outputs);
  const std::vector<Fault> faults = faults_of(model, costs, x.front());
  std::string layers;
  for (const Fault& fault : faults)
    layers += fmt::format("{}'{}' {}{}", layers.empty() ? "" : ", ", fault.layer, percent(fault.lost), fault.why());
  size_t images = 0;
  for (const at::Tensor& batch : x) images += static_cast<size_t>(batch.size(0));
  const std::string silence = silence_note(costs.outputs, images);
  return fmt::format("what int8 loses: of the outputs {} by all {}, alone {}. Tried: {}. May help: {}{}", percent(lost),
                     counted(static_cast<long>(costs.layers.size()), "layer"), layers, tried(run.recipe, start),
                     fmt::join(cures(run, start, faults, lost), "; "), silence.empty() ? "" : ". But " + silence);
} catch (const std::exception& error) {
  return fmt::format("what int8 loses was not found out: {}", error.what());
}

}  // namespace octet
