// SPDX-License-Identifier: Apache-2.0
#include "src/recipe/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <system_error>
#include <type_traits>
#include <variant>

#include "src/base/error.h"
#include "src/net/zoo.h"

namespace octet {
namespace {

using Kind = YamlNode::Kind;

constexpr size_t kLongestShown = 60;

/// Reads values of one field. Throws Error(usage) with the field's name and what it allows.
class Reader {
 public:
  Reader(const Field& field, const std::string& name) : field_(field), name_(name) {}

  void read(const YamlNode& node, bool& value) const {
    if (node.kind != Kind::scalar || node.quoted || (node.text != "true" && node.text != "false")) wrong_type(node);
    value = node.text == "true";
  }
  void read(const YamlNode& node, int& value) const { value = integer<int>(node); }
  void read(const YamlNode& node, uint64_t& value) const { value = integer<uint64_t>(node); }
  void read(const YamlNode& node, double& value) const {
    const auto number = parse<double>(node);
    if (!number || !std::isfinite(*number)) wrong_type(node);
    check_range(node, *number);
    value = *number;
  }
  void read(const YamlNode& node, std::optional<double>& value) const {
    if (node.kind == Kind::scalar && !node.quoted && node.text == kAuto)
      value.reset();
    else
      read(node, value.emplace());
  }
  void read(const YamlNode& node, std::string& value) const {
    if (node.kind != Kind::scalar) wrong_type(node);
    if (!is_clean_text(node.text, false)) refuse(node, "is not UTF-8 text on one line");
    const auto& choices = field_.rule.choices;
    if (!choices.empty() && std::find(choices.begin(), choices.end(), node.text) == choices.end()) {
      refuse(node, "unknown value " + shown(node.text) + suggestion(node.text, choices));
    }
    value = node.text;
  }
  /// Returns the row of a word among the field's choices.
  size_t read_choice(const YamlNode& node) const {
    std::string word;
    read(node, word);
    const auto& choices = field_.rule.choices;
    return static_cast<size_t>(std::find(choices.begin(), choices.end(), word) - choices.begin());
  }
  template <class T>
  void read(const YamlNode& node, std::vector<T>& values) const {
    if (node.kind != Kind::list) wrong_type(node);
    std::vector<T> list(node.items.size());
    for (size_t i = 0; i < list.size(); ++i) read(node.items[i], list[i]);
    values = std::move(list);
  }

  /// Reads {name: conv1, op: conv2d, inputs: [a, b], out_channels: 16, kernel: 3}.
  void read(const YamlNode& node, NodeSpec& value) const {
    if (node.kind != Kind::map) refuse(node, "a node of the graph is a map {name, op, inputs, attributes...}");
    std::set<std::string> seen;
    for (size_t i = 0; i < node.keys.size(); ++i) {
      const std::string& key = node.keys[i].text;
      if (!seen.insert(key).second) refuse(node.keys[i], shown(key) + " is given twice");
      read_part(node.keys[i], node.items[i], value);
    }
    if (value.name.empty() || value.op.empty()) refuse(node, "a node of the graph needs a name and an op");
  }

  /// Reads {match: "layer4.*", weight_bits: 4, activation_bits: 8}.
  void read(const YamlNode& node, LayerBits& value) const {
    if (node.kind != Kind::map) refuse(node, "an entry is a map {match, weight_bits, activation_bits}");
    static const std::vector<std::string_view> kKeys = {"match", "weight_bits", "activation_bits"};
    std::set<std::string> seen;
    for (size_t i = 0; i < node.keys.size(); ++i) {
      const std::string& key = node.keys[i].text;
      if (!seen.insert(key).second) refuse(node.keys[i], shown(key) + " is given twice");
      if (key == "match") {
        read(node.items[i], value.match);
      } else if (key == "weight_bits") {
        read(node.items[i], value.weight_bits);
      } else if (key == "activation_bits") {
        read(node.items[i], value.activation_bits);
      } else {
        refuse_part(node.keys[i], key.substr(0, kLongestShown), "unknown key" + suggestion(key, kKeys), kKeys);
      }
    }
    if (value.match.empty() || seen.size() < 2) {
      refuse(node, "an entry needs match, and weight_bits or activation_bits or both");
    }
  }

 private:
  [[noreturn]] void refuse(const YamlNode& node, const std::string& what) const {
    throw usage_error(place(name_, node) + ": " + field_.key + ": " + with_allowed(what, allowed(field_)));
  }

  [[noreturn]] void wrong_type(const YamlNode& node) const {
    static constexpr const char* kKinds[] = {"nothing", "", "a list", "a map"};
    const bool scalar = node.kind == Kind::scalar;
    const std::string what = scalar ? shown(node.text) + (node.quoted ? " (quoted)" : "") : kKinds[int(node.kind)];
    refuse(node, "is " + what + ", not of type '" + type_name(field_) + "'");
  }

  template <class T>
  static std::optional<T> parse(const YamlNode& node) {
    T value{};
    const char* end = node.text.data() + node.text.size();
    if (node.kind != Kind::scalar || node.quoted) return std::nullopt;
    const auto result = std::from_chars(node.text.data(), end, value);
    if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
    return value;
  }

  template <class T>
  T integer(const YamlNode& node) const {
    const auto number = parse<T>(node);
    if (!number) {
      // An integer too large for the type is out of range, not of a wrong type.
      const auto wide = parse<double>(node);
      if (wide && std::abs(*wide) > 1e9 && node.text.find_first_of(".eEn") == std::string::npos) {
        refuse(node, node.text.substr(0, kLongestShown) + " is out of range");
      }
      wrong_type(node);
    }
    check_range(node, static_cast<double>(*number));
    return *number;
  }

  void check_range(const YamlNode& node, double number) const {
    const Rule& rule = field_.rule;
    const bool low = rule.above_minimum ? number > rule.minimum : number >= rule.minimum;
    const bool high = rule.below_maximum ? number < rule.maximum : number <= rule.maximum;
    if (!low || !high) refuse(node, node.text.substr(0, kLongestShown) + " is out of range");
  }

  void read_part(const YamlNode& key, const YamlNode& node, NodeSpec& value) const {
    const auto& known = graph_attributes();
    if (key.text == "name") {
      read(node, value.name);
    } else if (key.text == "op") {
      read(node, value.op);
      const auto& ops = written_ops();
      if (std::find(ops.begin(), ops.end(), value.op) == ops.end()) {
        refuse_part(node, key.text, "unknown op " + shown(value.op) + suggestion(value.op, ops), ops);
      }
    } else if (key.text == "inputs") {
      read(node, value.inputs);
    } else if (std::find(known.begin(), known.end(), key.text) != known.end()) {
      value.attributes[key.text] = read_attribute(key.text, node);
    } else {
      std::vector<std::string_view> keys = {"name", "op", "inputs"};
      keys.insert(keys.end(), known.begin(), known.end());
      refuse_part(key, key.text.substr(0, kLongestShown), "unknown key" + suggestion(key.text, keys), keys);
    }
  }

  /// Reads an attribute of a node: an integer, except dropout, slope and epsilon (0 .. 1), scale (above 0), and bias
  /// and transposed (true or false, kept as 1 or 0).
  double read_attribute(const std::string& key, const YamlNode& node) const {
    if (key == "bias" || key == "transposed") {
      if (node.kind != Kind::scalar || node.quoted || (node.text != "true" && node.text != "false")) {
        refuse_part(node, key, "wrong value", {"true", "false"});
      }
      return node.text == "true" ? 1 : 0;
    }
    const auto number = parse<double>(node);
    if (key == "dropout" || key == "slope") {
      if (!number || !(*number >= 0 && *number < 1)) refuse_part(node, key, "wrong value", {">= 0, < 1"});
      return *number;
    }
    if (key == "epsilon") {
      if (!number || !(*number > 0 && *number <= 1)) refuse_part(node, key, "wrong value", {"> 0, <= 1"});
      return *number;
    }
    if (key == "scale") {
      if (!number || !(*number > 0 && *number <= std::numeric_limits<float>::max()))
        refuse_part(node, key, "wrong value", {"> 0"});
      return *number;
    }
    constexpr double kLargest = 65536;
    if (!number || !(*number >= 0 && *number <= kLargest) || *number != std::floor(*number)) {
      refuse_part(node, key, "wrong value", {"an integer 0 .. 65536"});
    }
    return *number;
  }

  [[noreturn]] void refuse_part(const YamlNode& node, const std::string& key, const std::string& what,
                                const std::vector<std::string_view>& choices) const {
    const std::string list = fmt::format("{}", fmt::join(choices, ", "));
    throw usage_error(fmt::format("{}: {}.{}: {}", place(name_, node), field_.key, key, with_allowed(what, list)));
  }

  const Field& field_;
  const std::string& name_;
};

std::string to_text(bool value) { return value ? "true" : "false"; }
std::string to_text(int value) { return std::to_string(value); }
std::string to_text(uint64_t value) { return std::to_string(value); }
std::string to_text(double value) { return fmt::format("{}", value); }
std::string to_text(std::optional<double> value) { return value ? to_text(*value) : std::string(kAuto); }
std::string to_text(const std::string& value) { return yaml_scalar(value); }

template <class T>
std::string to_text(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : ", ") + to_text(value);
  return "[" + text + "]";
}

std::string to_text(const std::vector<NodeSpec>& nodes) {
  if (nodes.empty()) return "[]";
  std::string text;
  for (const NodeSpec& node : nodes) {
    text += "\n    - {name: " + to_text(node.name) + ", op: " + to_text(node.op);
    if (!node.inputs.empty()) text += ", inputs: " + to_text(node.inputs);
    for (const auto& [key, value] : node.attributes) {
      text += ", " + key + ": " + (key == "bias" ? to_text(value != 0) : to_text(value));
    }
    text += "}";
  }
  return text;
}

std::string to_text(const std::vector<LayerBits>& layers) {
  if (layers.empty()) return "[]";
  std::string text;
  for (const LayerBits& layer : layers) {
    text += "\n    - {match: " + to_text(layer.match);
    if (layer.weight_bits != 0) text += ", weight_bits: " + to_text(layer.weight_bits);
    if (layer.activation_bits != 0) text += ", activation_bits: " + to_text(layer.activation_bits);
    text += "}";
  }
  return text;
}

}  // namespace

void assign(const Field& field, const YamlNode& node, const std::string& name, Recipe& recipe) {
  const Reader reader(field, name);
  if (const Choice* choice = std::get_if<Choice>(&field.slot)) return choice->choose(recipe, reader.read_choice(node));
  std::visit(
      [&](const auto& reference) {
        if constexpr (!std::is_same_v<decltype(reference), const Choice&>) reader.read(node, reference(recipe));
      },
      field.slot);
}

std::string value_text(const Field& field, const Recipe& recipe) {
  if (const Choice* choice = std::get_if<Choice>(&field.slot)) {
    const std::string word(field.rule.choices.at(choice->row(recipe)));
    return word == "true" || word == "false" ? word : to_text(word);  // without quotes, as users write them
  }
  Recipe copy = recipe;  // slots refer to a mutable recipe
  return std::visit(
      [&](const auto& reference) -> std::string {
        if constexpr (std::is_same_v<decltype(reference), const Choice&>)
          return "";
        else
          return to_text(reference(copy));
      },
      field.slot);
}

std::string shown(const std::string& text) {
  return text.size() <= kLongestShown ? "'" + text + "'" : "'" + text.substr(0, kLongestShown) + "...'";
}

std::string with_allowed(const std::string& what, const std::string& choices) {
  return what + (what.back() == '?' ? " allowed: " : "; allowed: ") + choices;
}

std::string suggestion(const std::string& word, const std::vector<std::string_view>& candidates) {
  return word.size() > kLongestShown ? "" : did_you_mean(word, candidates);
}

}  // namespace octet
