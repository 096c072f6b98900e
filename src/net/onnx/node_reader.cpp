// SPDX-License-Identifier: Apache-2.0
#include "src/net/onnx/node_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/safetensors.h"
#include "src/net/onnx/rules.h"
#include "src/net/shapes.h"

namespace octet {
namespace {

using onnx::AttributeProto;

/// Whether a rule takes [N, H, W, C] of octet's images, or after a flatten (rank 2) a row in the order H, W, C. Those
/// of single values give what they take; the others know both orders.
bool takes_channels_last(const std::string& op, int rank) {
  static const std::set<std::string_view> kOperators = {"Add",
                                                        "Clip",
                                                        "Div",
                                                        "Dropout",
                                                        "Elu",
                                                        "Erf",
                                                        "Flatten",
                                                        "Gelu",
                                                        "HardSigmoid",
                                                        "HardSwish",
                                                        "LeakyRelu",
                                                        "Max",
                                                        "Min",
                                                        "Mish",
                                                        "Mul",
                                                        "Neg",
                                                        "PRelu",
                                                        "Pow",
                                                        "QuantizeLinear",
                                                        "ReduceMean",
                                                        "Relu",
                                                        "Reshape",
                                                        "Shape",
                                                        "Sigmoid",
                                                        "Softmax",
                                                        "Softplus",
                                                        "Squeeze",
                                                        "Sub",
                                                        "Sum",
                                                        "Tanh"};
  return rank == 4 ? kOperators.contains(op) : op == "Gemm" || op == "MatMul";
}

std::string type_text(int type) {
  return AttributeProto::AttributeType_IsValid(type)
             ? AttributeProto::AttributeType_Name(static_cast<AttributeProto::AttributeType>(type))
             : std::to_string(type);
}

}  // namespace

void NodeReader::fail(const std::string& what) const {
  throw data_error(fmt::format("{}: {}: {}", network_.file().name, label(), what));
}

void NodeReader::refuse(const std::string& what, const std::string& cure) const {
  const std::string again =
      network_.marks == nullptr ? "and export it again" : std::string("or ") + kQuantizeByOnnxRuntime;
  const std::string usual =
      "; change it where the network is made, to a form that src/net/onnx/README.md lists, " + again;
  throw OnnxRefusal(data_error(fmt::format("{}: {}: {}", network_.file().name, label(), what)),
                    cure.empty() ? usual : cure);
}

void NodeReader::invalid(const std::string& what) const {
  fail(what + "; ONNX does not allow it: export the network again");
}

const OnnxValue& NodeReader::input(int i) {
  if (!has_input(i)) invalid(fmt::format("input {} is missing", i));
  if (const OnnxValue* value = network_.find(node_.input(i))) return *value;
  refuse(fmt::format("input '{}' is given by no node, or is a second output, which octet makes of a Split only",
                     shown_name(node_.input(i))));
}

/// Returns an activation in reals, whatever other fields it has set.
const OnnxValue& NodeReader::reals(int i) {
  const OnnxValue& value = input(i);
  if (value.node < 0)
    refuse(fmt::format("input '{}' is a constant; expected an activation", shown_name(node_.input(i))));
  if (value.groups != 0) refuse("its input has five dimensions; octet knows them in a channel shuffle only");
  if (value.softmax)
    refuse(
        "comes after a Softmax; octet knows a Softmax at the end, which it leaves out, and over the channels of "
        "heads in attention");
  if (value.codes) refuse(fmt::format("reads codes of '{}'; expected a DequantizeLinear", shown_name(node_.input(i))));
  if (value.channels_last && !takes_channels_last(op(), value.rank))
    refuse(fmt::format("input '{}' is {}; expected a Transpose to [N, C, H, W] before it", shown_name(node_.input(i)),
                       value.rank == 4 ? "[N, H, W, C]" : "an image as a row in the order H, W, C"));
  if (std::exchange(channels_last_, value.channels_last).value_or(value.channels_last) != value.channels_last)
    refuse("joins [N, H, W, C] with [N, C, H, W]");
  return value;
}

const OnnxValue& NodeReader::images(int i) {
  const OnnxValue& value = reals(i);
  if (value.heads != 0)
    refuse(fmt::format("input '{}' is in heads, with its pixels in a row; octet knows that inside attention only",
                       shown_name(node_.input(i))));
  return value;
}

const OnnxValue& NodeReader::head_input(int i) {
  const OnnxValue& value = reals(i);
  check_no_bounds(i, value);
  return without_pad(i);
}

const OnnxValue& NodeReader::window_input(int i) {
  images(i);
  OnnxValue& value = network_.values.at(node_.input(i));
  check_no_bounds(i, value);
  const bool can_be_layer = !value.erf && network_.marks == nullptr;
  if (!value.plain() && can_be_layer)
    value = onnx_rules::with_numbers_applied(network_, value, {node_.input(i), node_.input(i) + "/scale"});
  check_no_factor(i, value);
  return value;
}

const OnnxValue& NodeReader::activation(int i) {
  window_input(i);
  return without_pad(i);
}

const OnnxValue& NodeReader::scaled_input(int i) {
  check_no_bounds(i, images(i));
  return without_pad(i);
}

const OnnxValue& NodeReader::bounded_input(int i) {
  check_no_factor(i, images(i));
  return without_pad(i);
}

void NodeReader::check_no_bounds(int i, const OnnxValue& value) const {
  if (value.bounded())
    refuse(fmt::format("input '{}' is a Relu or Clip without a scale of its own; expected a QuantizeLinear behind it",
                       shown_name(node_.input(i))));
}

void NodeReader::check_no_factor(int i, const OnnxValue& value) const {
  if (value.plain()) return;
  refuse(fmt::format("input '{}' is {} times {} plus {}; octet knows that only inside a hard-swish or gelu",
                     shown_name(node_.input(i)), value.factor, value.erf ? "an Erf" : "an activation", value.shift));
}

/// Returns input i; zeros around it become pixels of a layer that copies its input.
const OnnxValue& NodeReader::without_pad(int i) {
  OnnxValue& value = network_.values.at(node_.input(i));
  if (value.pad == Padding{}) return value;
  if (network_.marks != nullptr) refuse("its input is a Pad; expected a Conv, MaxPool or AveragePool behind a Pad");
  const OnnxValue copy =
      onnx_rules::pick_pixels(*this, value, {.pad = value.pad}, {0}, {node_.input(i), node_.input(i) + "/pad"});
  value.node = copy.node;
  value.pad = {};
  return value;
}

const Constant& NodeReader::bound(int i) {
  const OnnxValue& value = input(i);
  if (!value.constant)
    refuse(
        fmt::format("input '{}' is computed by the network; expected a constant, as an export for images of one size "
                    "with its constants folded has it",
                    shown_name(node_.input(i))));
  return *value.constant;
}

const Constant& NodeReader::constant(int i) {
  const Constant& found = bound(i);
  if (!found.is_finite)
    throw data_error(fmt::format("{}: weights '{}': {}{}: train or export the network again", network_.file().name,
                                 shown_name(node_.input(i)), not_finite(found.reals, found.shape),
                                 found.too_large > 0 ? "; as float64 in the file, beyond float32's 3.4e38" : ""));
  return found;
}

const Constant& NodeReader::weights(int i, size_t rank) {
  const Constant& found = constant(i);
  const bool fits =
      found.real && found.shape.size() == rank &&
      std::all_of(found.shape.begin(), found.shape.end(), [](int64_t dim) { return dim >= 1 && dim <= kMaxDimension; });
  if (!fits) {
    refuse(fmt::format("input '{}' is {} {}; expected float32 weights with {} dimensions of 1 to {}",
                       shown_name(node_.input(i)), found.real ? "float32" : "integer", dims_text(found.shape), rank,
                       kMaxDimension));
  }
  return found;
}

std::vector<int64_t> NodeReader::integers_input(int i) {
  const Constant& found = constant(i);
  if (found.real || found.shape.size() > 1) {
    refuse(fmt::format("input '{}' is {} {}; expected a row of integers", shown_name(node_.input(i)),
                       found.real ? "float32" : "integer", dims_text(found.shape)));
  }
  return found.integers;
}

bool NodeReader::all_constant() {
  for (int i = 0; i < node_.input_size(); ++i)
    if (has_input(i) && !input(i).constant) return false;
  return true;
}

int NodeReader::readers(int i) const {
  const auto found = network_.uses.find(node_.input(i));
  return found == network_.uses.end() ? 0 : found->second;
}

const AttributeProto* NodeReader::find(const char* name) {
  taken_.insert(name);
  const AttributeProto* found = nullptr;
  for (const AttributeProto& attribute : node_.attribute()) {
    if (attribute.name() != name) continue;
    if (found != nullptr) invalid(fmt::format("attribute '{}' is given twice", name));
    if (attribute.has_ref_attr_name())
      fail(
          fmt::format("attribute '{}' refers to a function's; expected a value: onnx.inliner.inline_local_functions "
                      "gives it one",
                      name));
    found = &attribute;
  }
  return found;
}

const AttributeProto* NodeReader::find(const char* name, AttributeProto::AttributeType type) {
  const AttributeProto* found = find(name);
  if (found != nullptr && found->type() != type) {
    invalid(fmt::format("attribute '{}' is of type {}; expected {}", name, type_text(found->type()), type_text(type)));
  }
  return found;
}

int64_t NodeReader::integer(const char* name, int64_t fallback) {
  const AttributeProto* found = find(name, AttributeProto::INT);
  return found != nullptr ? found->i() : fallback;
}

float NodeReader::real(const char* name, float fallback) {
  const AttributeProto* found = find(name, AttributeProto::FLOAT);
  return found != nullptr ? found->f() : fallback;
}

std::string NodeReader::text(const char* name, const std::string& fallback) {
  const AttributeProto* found = find(name, AttributeProto::STRING);
  return found != nullptr ? found->s() : fallback;
}

std::vector<int64_t> NodeReader::integers(const char* name, std::vector<int64_t> fallback) {
  const AttributeProto* found = find(name, AttributeProto::INTS);
  return found != nullptr ? std::vector<int64_t>(found->ints().begin(), found->ints().end()) : std::move(fallback);
}

std::vector<int64_t> NodeReader::row(int i, const char* name) {
  return has_input(i) ? integers_input(i) : integers(name, {});
}

void NodeReader::done() {
  for (const AttributeProto& attribute : node_.attribute()) {
    if (!taken_.contains(attribute.name()))
      refuse(fmt::format("attribute '{}' is nothing that octet knows", shown_name(attribute.name())));
  }
}

std::vector<std::string> NodeReader::names(int weight_input) const {
  std::vector<std::string> names;
  constexpr std::string_view kSuffix = ".weight";
  if (weight_input >= 0 && has_input(weight_input)) {
    const std::string& weight = node_.input(weight_input);
    if (weight.ends_with(kSuffix)) names.push_back(weight.substr(0, weight.size() - kSuffix.size()));
  }
  names.push_back(node_.name());
  names.push_back(node_.output(0));
  return names;
}

void NodeReader::make(Node made, int rank) { result(network_.append(std::move(made), names(), rank)); }

void NodeReader::result(OnnxValue value, int output) {
  if (value.node >= 0 && value.rank == 4) value.channels_last = value.channels_last || channels_last_.value_or(false);
  if (!network_.values.emplace(node_.output(output), std::move(value)).second)
    invalid(fmt::format("two nodes give '{}'", shown_name(node_.output(output))));
}

}  // namespace octet
