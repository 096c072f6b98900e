// SPDX-License-Identifier: Apache-2.0
#include "src/net/onnx/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "src/base/numbers.h"
#include "src/base/text.h"

namespace octet {
namespace {

using onnx::NodeProto;

constexpr size_t kMaxOutputs = 32;          // that a message names
constexpr int64_t kWeightsThatCount = 100;  // a hundredth of all; YOLOv8's decoding has a Conv of 16 weights

/// Walks back from the outputs to the first values that can be outputs themselves.
class Cut {
 public:
  explicit Cut(Network& network) : network_(network), graph_(network.file().model->graph()) {
    for (const NodeProto& node : graph_.node())
      for (const std::string& output : node.output()) makers_.emplace(output, &node);
  }

  NearestValues run(const std::vector<std::string>& outputs) {
    for (const std::string& output : outputs) need(output);
    while (!waiting_.empty()) {
      const NodeProto* node = waiting_.back();
      waiting_.pop_back();
      for (const std::string& input : node->input()) need(input);
    }
    int64_t all = 0, behind = 0;
    for (const NodeProto& node : graph_.node()) {
      const int64_t weights = weights_of(node);
      all += weights;
      if (left_out_.contains(&node)) behind += weights;
    }
    if (all == 0 || behind > all / kWeightsThatCount || reaches_image_ || ends_.size() > kMaxOutputs) return {};
    if (loses_parameters()) return {};
    return in_order();
  }

 private:
  void need(const std::string& name) {
    if (name.empty() || network_.initializers.contains(name) || !seen_.insert(name).second) return;
    const auto value = network_.values.find(name);
    if (value != network_.values.end() && value->second.node < 0) return;  // a constant
    const auto maker = makers_.find(name);
    const bool can_end =
        value != network_.values.end() && value->second.node > 0 && output_fault(value->second).empty();
    if (can_end && (maker == makers_.end() || !joins_outputs(*maker->second))) {
      ends_.insert(name);
      return;
    }
    if (maker == makers_.end()) {
      reaches_image_ = true;
    } else if (left_out_.insert(maker->second).second) {
      waiting_.push_back(maker->second);
    }
  }

  /// Whether the network had better end before the node. A Concat gives boxes, scores and classes one scale although
  /// their values differ by orders of magnitude, and a Sigmoid has the codes of probabilities where most are near 0: on
  /// YOLOX-Nano that costs 3.4 AP. Your program does both in float.
  static bool joins_outputs(const NodeProto& node) { return node.op_type() == "Concat" || node.op_type() == "Sigmoid"; }

  int64_t weights_of(const NodeProto& node) const {
    constexpr std::string_view kLayers[] = {"Conv", "ConvTranspose", "Gemm", "MatMul"};
    if (std::find(std::begin(kLayers), std::end(kLayers), node.op_type()) == std::end(kLayers)) return 0;
    if (node.input_size() < 2) return 0;
    std::string name = node.input(1);
    for (int step = 0; step < 2; ++step) {  // a QuantizeLinear and a DequantizeLinear may be in between
      const auto maker = makers_.find(name);
      if (maker != makers_.end() && maker->second->input_size() > 0) name = maker->second->input(0);
    }
    const auto weight = network_.initializers.find(name);
    if (weight == network_.initializers.end()) return 0;
    int64_t count = 1;
    for (const int64_t dim : weight->second->dims()) count = saturating_product({count, std::max<int64_t>(dim, 0)});
    return std::min(count, int64_t{1} << 32);  // so that sums cannot overflow
  }

  /// Whether a node that is left out takes as many reals as an end has channels, like a trained bias or factor.
  bool loses_parameters() const {
    std::set<size_t> channels;
    for (const std::string& end : ends_)
      channels.insert(static_cast<size_t>(network_.shape(network_.values.at(end)).c));
    channels.erase(1);
    for (const NodeProto* node : left_out_)
      for (const std::string& input : node->input()) {
        const OnnxValue* value = input.empty() ? nullptr : network_.find(input);
        if (value != nullptr && value->constant && value->constant->real &&
            channels.contains(value->constant->elements()))
          return true;
      }
    return false;
  }

  NearestValues in_order() const {
    NearestValues found;
    for (const NodeProto& node : graph_.node()) {
      for (const std::string& output : node.output())
        if (ends_.contains(output)) found.names.push_back(output);
      const std::string op = shown_name(node.op_type());
      if (left_out_.contains(&node) &&
          std::find(found.left_out.begin(), found.left_out.end(), op) == found.left_out.end())
        found.left_out.push_back(op);
    }
    return found;
  }

  Network& network_;
  const onnx::GraphProto& graph_;
  std::map<std::string, const NodeProto*> makers_;
  std::vector<const NodeProto*> waiting_;
  std::set<const NodeProto*> left_out_;
  std::set<std::string> seen_, ends_;
  bool reaches_image_ = false;
};

/// Returns "\"a\", \"b\"", for YAML and Python.
std::string in_quotes(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) {
    list += list.empty() ? "\"" : ", \"";
    for (const char c : printable(name)) list += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
    list += '"';
  }
  return list;
}

}  // namespace

std::string output_fault(const OnnxValue& value) {
  if (value.node < 0) return "a constant, whatever the image is";
  if (value.groups != 0) return "has five dimensions";
  if (value.heads != 0) return "is in heads of attention; expected an image [N, C, H, W]";
  if (value.channels_last && value.rank == 2) return "an image as a row in the order H, W, C; octet's is C, H, W";
  if (value.pad != Padding{}) return "comes from a Pad; expected a layer behind it";
  if (!value.plain()) return "an activation times or plus a number; expected a layer behind it";
  if (value.bounded() || value.codes) return "expected reals, without a bound of their own";
  return "";
}

NearestValues nearest_values(Network& network, const std::vector<std::string>& outputs) {
  return Cut(network).run(outputs);
}

std::string how_to_end_at(const Network& network, const std::vector<std::string>& names, int open_size) {
  const std::string list = in_quotes(names);
  const std::string joined = printable(fmt::format("{}", fmt::join(names, ",")));
  // --outputs splits at commas.
  const bool commas = static_cast<size_t>(std::count(joined.begin(), joined.end(), ',')) + 1 != names.size();
  if (network.marks != nullptr && commas) return fmt::format("onnx.utils.extract_model, output_names=[{}]", list);
  if (network.marks != nullptr)
    return fmt::format("octet export {} --outputs {} --out int8.safetensors", shell_word(network.file().name),
                       shell_word(joined));
  const std::string inspect =
      fmt::format("; octet inspect {} --outputs {}{}", shell_word(network.file().name), shell_word(joined),
                  open_size > 0 ? fmt::format(" --image-size {}", open_size) : "");
  return fmt::format("in a recipe model.outputs: [{}]{}", list, commas ? "" : inspect);
}

std::string advice_to_end(const Network& network, const NearestValues& nearest, int open_size) {
  return fmt::format(
      "; no layers stand behind it: decoding and suppressing boxes, or picking a class, stays outside octet. Leave "
      "it to your program ({}) and end the network before it: {}",
      fmt::join(nearest.left_out, ", "), how_to_end_at(network, nearest.names, open_size));
}

bool prepares_images(Network& network, const onnx::NodeProto& node) {
  constexpr std::string_view kOps[] = {"Add", "Cast",   "Clip",  "Div", "Gather",    "Mul",     "Pad",
                                       "Pow", "Resize", "Slice", "Sub", "Transpose", "Upsample"};
  if (std::find(std::begin(kOps), std::end(kOps), node.op_type()) == std::end(kOps)) return false;
  return std::all_of(node.input().begin(), node.input().end(), [&](const std::string& name) {
    const OnnxValue* value = name.empty() ? nullptr : network.find(name);
    return name.empty() || (value != nullptr && (value->node < 0 || (value->node == 0 && network.uses[name] == 1)));
  });
}

std::string advice_to_begin(const Network& network, const onnx::NodeProto& node,
                            const std::vector<std::string>& outputs) {
  return fmt::format(
      "; it prepares the images: leave it to your program, with what stands before it, and begin the file behind it: "
      "onnx.utils.extract_model({}, "
      "\"NEW.onnx\", [{}], [{}])",
      in_quotes({network.file().name}), in_quotes({node.output(0)}), in_quotes(outputs));
}

}  // namespace octet
