// SPDX-License-Identifier: Apache-2.0
// octet inspect CHECKPOINT|FILE.onnx|RECIPE: what is in an int8 checkpoint, layer by layer, what would be imported, or
// where to cut a network.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

#include "src/base/text.h"
#include "src/engine/engine.h"
#include "src/engine/fusion.h"
#include "src/net/checkpoint.h"
#include "src/net/onnx/onnx.h"
#include "src/net/op_traits.h"
#include "src/net/shapes.h"
#include "tools/octet/commands.h"
#include "tools/octet/target.h"
#include "tools/octet/trained.h"

namespace octet::cli {
namespace {

/// Returns "2", or "2x1" if the numbers differ.
std::string both(int vertical, int horizontal) {
  return vertical == horizontal ? fmt::format("{}", vertical) : fmt::format("{}x{}", vertical, horizontal);
}

std::string text_of(const Padding& pad) {
  if (pad.is_even()) return both(pad.top, pad.left);
  return fmt::format("{},{},{},{}", pad.top, pad.left, pad.bottom, pad.right);
}

std::string text_of(const Window& w) {
  std::string text = fmt::format("{}x{}", w.kernel_h, w.kernel_w);
  if (w.stride_h != 1 || w.stride_w != 1) text += "/" + both(w.stride_h, w.stride_w);
  if (w.pad != Padding{}) text += " pad " + text_of(w.pad);
  if (w.dilation_h != 1 || w.dilation_w != 1) text += " dilation " + both(w.dilation_h, w.dilation_w);
  return text;
}

/// Returns for example "3x3/2 pad 1 depthwise"; default values are left out.
std::string text_of(const ShapeAttributes& node) {
  const OpTraits& op = traits(node.op);
  std::string text = op.windowed ? text_of(node.window) : "";
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : " ") + more; };
  if (op.grouped && node.groups != 1)
    add(op.weighted && node.groups == node.out_channels ? "depthwise" : fmt::format("{} groups", node.groups));
  if (node.transposed) add("transposed");
  if (op.has_factor) add(fmt::format("times {}x{}", node.factor_h, node.factor_w));
  if (node.op == Op::slice)
    add(fmt::format("channels {}..{}", node.first_channel, node.first_channel + node.out_channels - 1));
  return text;
}

/// Adds the attributes with the keys of a checkpoint; the window's pad is top, left, bottom, right.
void add_attributes(const ShapeAttributes& node, nlohmann::json& to) {
  const OpTraits& op = traits(node.op);
  if (op.windowed) {
    const Window& w = node.window;
    to["window"] = {{"kernel", {w.kernel_h, w.kernel_w}},
                    {"stride", {w.stride_h, w.stride_w}},
                    {"pad", {w.pad.top, w.pad.left, w.pad.bottom, w.pad.right}},
                    {"dilation", {w.dilation_h, w.dilation_w}}};
  }
  if (op.grouped) to["groups"] = node.groups;
  if (node.op == Op::matmul) to["transposed"] = node.transposed;
  if (op.has_factor) to["factor"] = {node.factor_h, node.factor_w};
  if (node.op == Op::slice) to["first_channel"] = node.first_channel;
}

std::string op_text(const Int8Node& node) {
  std::string name(int8_op_name(node.op));
  return node.function.empty() ? name : name + " " + node.function;
}

std::string code_range(const Int8Node& node) {
  if (node.float_output) return "float32";
  return fmt::format("{}  zero {}  clamp {}..{}", code_type(node.out), node.out.zero_point, node.clamp_min,
                     node.clamp_max);
}

/// Returns "10 classes" for a classifier, else a description of every output.
std::string output_names(const Int8Graph& graph) {
  if (is_classifier(graph)) return fmt::format("{} classes", graph.classes());
  const Int8Node& first = graph.nodes[graph.outputs.front()];
  if (graph.outputs.size() == 1 && first.float_output)
    return fmt::format("{} classes for each of {}x{} pixels", first.shape.c, first.shape.h, first.shape.w);
  std::vector<std::string> outputs;
  for (const int output : graph.outputs) outputs.push_back(printable(graph.nodes[output].name));
  return fmt::format("outputs {}", fmt::join(outputs, " "));
}

int lowest_weight(const Int8Node& node) { return *std::min_element(node.weight.begin(), node.weight.end()); }
int highest_weight(const Int8Node& node) { return *std::max_element(node.weight.begin(), node.weight.end()); }

std::string weight_codes(const Int8Node& node) {
  return fmt::format("{}..{}{}", lowest_weight(node), highest_weight(node), node.two_of_four ? "  2:4" : "");
}

/// Returns "2:4 sparse: 18 of 21 layers with 98.9 % of the weights, every group of four checked; 50.3 % of theirs are
/// 0", or
/// "" without sparse layers. Reading a file checks its groups.
std::string sparsity_text(const Int8Graph& graph) {
  long layers = 0, sparse = 0, weights = 0, of_sparse = 0, zeros = 0;
  for (const Int8Node& node : graph.nodes) {
    if (node.weight.empty()) continue;
    ++layers;
    weights += static_cast<long>(node.weight.size());
    if (!node.two_of_four) continue;
    ++sparse;
    of_sparse += static_cast<long>(node.weight.size());
    zeros += std::count(node.weight.begin(), node.weight.end(), 0);
  }
  if (sparse == 0) return "";
  const auto share = [](long part, long all) { return 100.0 * static_cast<double>(part) / static_cast<double>(all); };
  return fmt::format(
      "2:4 sparse: {} of {} layers with {:.1f} % of the weights, every group of four checked; {:.1f} % of theirs are "
      "0\n",
      sparse, layers, share(of_sparse, weights), share(zeros, of_sparse));
}

/// Returns a line about the head of a detector, or "".
std::string boxes_text(const Int8Graph& graph) {
  if (!graph.boxes) return "";
  std::vector<int> strides;
  for (const BoxHead::Level& level : graph.boxes->levels) strides.push_back(level.stride);
  return fmt::format("boxes: head {} of {} classes, strides {}, score {:g} and more, IoU {:g}, at most {}\n",
                     name_in(kBoxHeadKinds, graph.boxes->kind), box_classes(graph), fmt::join(strides, " "),
                     graph.boxes->score_threshold, graph.boxes->iou_threshold, graph.boxes->max_boxes);
}

std::string text(const Int8Graph& graph, const std::vector<LayerInfo>& kernels, const std::string& path,
                 const std::string& of_kernels) {
  TextTable table({{"node", Align::left},
                   {"op", Align::left},
                   {"inputs", Align::left},
                   {"window", Align::left},
                   {"output"},
                   {"scale"},
                   {"codes", Align::left},
                   {"weights"},
                   {"their codes"},
                   {"kernel", Align::left}});
  long weights = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Int8Node& node = graph.nodes[i];
    std::vector<std::string> inputs;
    for (int input : node.inputs) inputs.push_back(graph.nodes[input].name);
    weights += static_cast<long>(node.weight.size());
    table.add_row({node.name, op_text(node), fmt::format("{}", fmt::join(inputs, " ")), text_of(shape_attributes(node)),
                   fmt::format("{}x{}x{}", node.shape.c, node.shape.h, node.shape.w),
                   node.float_output ? "" : fmt::format("{:.6g}", node.out.scale), code_range(node),
                   node.weight.empty() ? "" : with_thousands(static_cast<long>(node.weight.size())),
                   node.weight.empty() ? "" : weight_codes(node), kernels[i].kernel});
  }
  std::string out = fmt::format("{}: {} (format {})\n", path, printable(graph.name), checkpoint_version(graph));
  out += fmt::format("input {}x{}x{}, {}, {} weights, {} multiply-adds an image, {} on disk\n", graph.input_shape().c,
                     graph.input_shape().h, graph.input_shape().w, output_names(graph), with_thousands(weights),
                     human_count(static_cast<double>(multiply_adds(graph))),
                     human_bytes(static_cast<double>(std::filesystem::file_size(path))));
  const Preprocessing& p = graph.preprocessing;
  const std::string crop =
      fmt::format("resize {}, crop {} (margin rounded {})", p.resize, p.crop, p.even_margin ? "half to even" : "down");
  out +=
      fmt::format("preprocessing: orientation {}, {}, {}, mean {}, std {}\n", p.exif_orientation ? "exif" : "as stored",
                  p.fit == Fit::crop ? crop : std::string(name_in(kFits, p.fit)), name_in(kChannelOrders, p.order),
                  fmt::join(p.mean, " "), fmt::join(p.std, " "));
  out += boxes_text(graph);
  out += sparsity_text(graph);
  out += fmt::format("recipe {}\n", graph.recipe_hash.empty() ? "unknown" : printable(graph.recipe_hash));
  for (const auto& [name, value] : graph.accuracies) out += fmt::format("{}: {}\n", printable(name), percent(value));
  return out + of_kernels + "\n" + table.render();
}

std::string json(const Int8Graph& graph, const std::vector<LayerInfo>& kernels, int batch) {
  nlohmann::json nodes = nlohmann::json::array();
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Int8Node& node = graph.nodes[i];
    nodes.push_back({{"name", node.name},
                     {"op", std::string(int8_op_name(node.op))},
                     {"inputs", node.inputs},
                     {"shape", {node.shape.c, node.shape.h, node.shape.w}},
                     {"scale", node.out.scale},
                     {"zero_point", node.out.zero_point},
                     {"codes", {node.out.quant_min, node.out.quant_max}},
                     {"clamp", {node.clamp_min, node.clamp_max}},
                     {"float_output", node.float_output},
                     {"weights", node.weight.size()},
                     {"kernel", kernels[i].kernel}});
    add_attributes(shape_attributes(node), nodes.back());
    if (node.op == Int8Op::lookup) nodes.back()["function"] = node.function;
    if (has_weight(node.op)) nodes.back()["weight_bits"] = node.weight_bits;
    if (has_weight(node.op)) nodes.back()["sparsity"] = node.two_of_four ? "2:4" : "none";
  }
  const nlohmann::json document = {{"name", graph.name},
                                   {"multiply_adds", multiply_adds(graph)},
                                   {"recipe_hash", graph.recipe_hash},
                                   {"accuracies", graph.accuracies},
                                   {"class_names", graph.class_names},
                                   {"kernels_for_batch", batch},
                                   {"nodes", nodes},
                                   {"outputs", graph.outputs}};
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

long own_weights(const ImportedNetwork& network, const std::string& node) {
  long count = 0;
  for (const char* suffix : {"weight", "bias", "running_mean", "running_var"}) {
    const auto found = network.weights.tensors.find(fmt::format("{}.{}", node, suffix));
    if (found != network.weights.tensors.end())
      count += static_cast<long>(found->second.bytes.size() / dtype_size(found->second.dtype));
  }
  return count;
}

std::string text(const ImportedNetwork& network, const std::string& path) {
  TextTable table({{"node", Align::left},
                   {"op", Align::left},
                   {"inputs", Align::left},
                   {"window", Align::left},
                   {"output"},
                   {"weights"}});
  long weights = 0;
  for (const Node& node : network.graph.nodes) {
    std::vector<std::string> inputs;
    for (const int input : node.inputs) inputs.push_back(network.graph.nodes[static_cast<size_t>(input)].name);
    const long own = own_weights(network, node.name);
    weights += own;
    table.add_row({node.name, std::string(op_name(node.op)), fmt::format("{}", fmt::join(inputs, " ")),
                   text_of(shape_attributes(node)), fmt::format("{}x{}x{}", node.shape.c, node.shape.h, node.shape.w),
                   own == 0 ? "" : with_thousands(own)});
  }
  std::vector<std::string> outputs;
  for (const int output : network.graph.outputs)
    outputs.push_back(to_string(network.graph.nodes[static_cast<size_t>(output)].shape));
  std::string out = fmt::format("{}: ONNX opset {}, written by {}\n", path, network.opset, printable(network.producer));
  out += fmt::format("input {}, output {}, {} weights, {} multiply-adds an image\n",
                     to_string(network.graph.nodes.front().shape), fmt::join(outputs, " and "), with_thousands(weights),
                     human_count(static_cast<double>(multiply_adds(network.graph))));
  for (const std::string& note : network.notes) out += fmt::format("note: {}\n", printable(note));
  return out + "\n" + table.render();
}

std::string json(const ImportedNetwork& network) {
  nlohmann::json nodes = nlohmann::json::array();
  for (const Node& node : network.graph.nodes) {
    nodes.push_back({{"name", node.name},
                     {"op", std::string(op_name(node.op))},
                     {"inputs", node.inputs},
                     {"shape", {node.shape.c, node.shape.h, node.shape.w}},
                     {"weights", own_weights(network, node.name)}});
    add_attributes(shape_attributes(node), nodes.back());
  }
  const nlohmann::json document = {{"name", network.graph.name},   {"opset", network.opset},
                                   {"producer", network.producer}, {"multiply_adds", multiply_adds(network.graph)},
                                   {"notes", network.notes},       {"nodes", nodes}};
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Prints the network as it would be imported, or throws why it cannot be.
ExitCode inspect_onnx(const Common& common, const std::string& path, const std::vector<std::string>& outputs,
                      int image_size) {
  const ImportedNetwork network = import_onnx(path, outputs, image_size);
  print_result(common, text(network, path), [&] { return json(network); });
  return ExitCode::ok;
}

/// Prints which of TensorRT's rules a quantized file breaks.
ExitCode inspect_tensorrt_rules(const Common& common, const std::string& path) {
  const std::vector<std::string> faults = tensorrt_faults(path);
  const std::string text =
      faults.empty() ? fmt::format("{}: keeps TensorRT's rules for QDQ models", path)
                     : fmt::format("{}: breaks TensorRT's rules for QDQ models\n{}", path, fmt::join(faults, "\n"));
  print_result(common, text, [&] { return nlohmann::json{{"rules", "tensorrt"}, {"faults", faults}}.dump(2); });
  return faults.empty() ? ExitCode::ok : ExitCode::data;
}

ExitCode inspect(const Common& common, const std::string& target, const std::vector<std::string>& outputs, int batch,
                 int image_size) {
  if (!common.set.empty()) throw usage_error("inspect: --set changes a recipe, which --stages takes; leave it out");
  if (target.ends_with(".onnx")) return inspect_onnx(common, target, outputs, image_size);
  if (image_size != 0)
    throw usage_error(fmt::format("{}: --image-size is for an .onnx file that leaves it open; leave it out", target));
  if (target.ends_with(".yaml") || target.ends_with(".yml"))
    throw usage_error(
        fmt::format("{}: is a recipe, from which nothing is trained yet; --stages N proposes where to cut its network, "
                    "a checkpoint or a run directory shows one",
                    target));
  if (!outputs.empty()) throw usage_error(fmt::format("{}: --outputs cuts a float .onnx file; leave it out", target));
  const Checkpoint checkpoint = open_checkpoint(target);
  const Engine& engine = preferred_engine(devices(common));
  const std::vector<LayerInfo> kernels =
      say_where_merged(checkpoint.graph, engine.compile(checkpoint.graph, {.max_batch = batch})->layers());
  const std::string of = fmt::format("kernels: engine {}, batch {}\n", engine.name(), batch);
  print_result(common, text(checkpoint.graph, kernels, checkpoint.file, of),
               [&] { return json(checkpoint.graph, kernels, batch); });
  return ExitCode::ok;
}

}  // namespace

void add_inspect(CLI::App& app, const Common& common, Action& action) {
  auto target = std::make_shared<std::string>();
  auto stages = std::make_shared<int>(0);
  auto outputs = std::make_shared<std::vector<std::string>>();
  auto batch = std::make_shared<int>(1), image_size = std::make_shared<int>(0);
  auto rules = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("inspect", "what is in a checkpoint, layer by layer, or what of an ONNX file is imported");
  command
      ->add_option("CHECKPOINT", *target,
                   "an int8.safetensors, a run directory, an .onnx file or, with --stages, a recipe")
      ->required();
  command->add_option("--stages", *stages, "of a recipe: where to cut its network for so many processes, measured here")
      ->check(CLI::Range(2, 64));
  CLI::Option* batch_given =
      command->add_option("--batch", *batch, "of a checkpoint: the kernels that run for so many images")
          ->check(CLI::Range(1, 4096))
          ->capture_default_str();
  command
      ->add_option(
          "--outputs", *outputs,
          "of a float .onnx file: A,B,..., values that the network is to give (a recipe's model.outputs); what is "
          "behind them is left out")
      ->delimiter(',');
  command
      ->add_option("--image-size", *image_size,
                   "of a float .onnx file that leaves height and width open or takes others: both (data.image_size)")
      ->check(CLI::Range(1, 65535));
  command->add_option("--rules", *rules, "of a quantized .onnx file: the rules of a runtime that it breaks: tensorrt")
      ->check(CLI::IsMember({"tensorrt"}));
  command->callback([&common, &action, target, stages, outputs, batch, image_size, batch_given, rules] {
    const bool other = *stages > 0 || target->ends_with(".onnx");
    if (batch_given->count() > 0 && other)
      throw usage_error("inspect: --batch is for a checkpoint, whose kernels it chooses; leave it out");
    if (!rules->empty() && (*stages > 0 || !outputs->empty() || *image_size > 0 || !target->ends_with(".onnx")))
      throw usage_error("inspect: --rules is for a quantized .onnx file, without --outputs, --image-size and --stages");
    action = [&common, target, stages, outputs, batch, image_size, rules] {
      if (!rules->empty()) return inspect_tensorrt_rules(common, *target);
      if (*stages == 0) return inspect(common, *target, *outputs, *batch, *image_size);
      if (!outputs->empty())
        throw usage_error("inspect: --outputs cuts an .onnx file, --stages a recipe; leave one out");
      return inspect_stages(common, *target, *stages);
    };
  });
}

}  // namespace octet::cli
