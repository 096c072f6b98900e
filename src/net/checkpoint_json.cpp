// SPDX-License-Identifier: Apache-2.0
#include "src/net/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/net/op_traits.h"

namespace octet {
namespace {

using nlohmann::json;

/// From this version on a file says which nodes are outputs (before: the last one) and the padding of each side
/// (before: equal on opposite sides).
constexpr int kOutputsVersion = 3;

/// From this version on a file says the bits of weights and packs those of fewer than 8.
constexpr int kPackedVersion = 6;

/// From this version on a file says which weights are 2:4 sparse.
constexpr int kSparseVersion = 7;
constexpr const char *kDense = "none", *kTwoOfFour = "2:4";

/// From this version on a file says how images are turned and how the margin of the centre crop is rounded.
constexpr int kOrientationVersion = 9;
constexpr const char *kExif = "exif", *kAsStored = "as_stored", *kHalfToEven = "half_to_even", *kDown = "down";

/// From this version on a file says how images are fitted to the input and in which order their channels are.
constexpr int kFitVersion = 11;

/// From this version on a lookup says whether it has a table for each channel (before: one for all).
constexpr int kChannelTablesVersion = 12;

/// From this version on a file says how the outputs of a detector become boxes, or null.
constexpr int kBoxesVersion = 13;

bool has_groups(const Int8Node& node, int version) {
  return traits(node.op).grouped || (node.op == Int8Op::lookup && version >= kChannelTablesVersion);
}

bool has_residual(const Int8Node& node) { return node.op == Int8Op::conv2d && node.inputs.size() == 2; }

json write_window(const Window& w, int version) {
  const json pad =
      version < kOutputsVersion ? json{w.pad.top, w.pad.left} : json{w.pad.top, w.pad.left, w.pad.bottom, w.pad.right};
  return {{"kernel", {w.kernel_h, w.kernel_w}},
          {"stride", {w.stride_h, w.stride_w}},
          {"pad", pad},
          {"dilation", {w.dilation_h, w.dilation_w}}};
}

Window read_window(JsonObject object, int version) {
  const auto kernel = object.integers("kernel", 2), stride = object.integers("stride", 2);
  const auto pad = object.integers("pad", version < kOutputsVersion ? 2 : 4), dilation = object.integers("dilation", 2);
  object.done();
  const Padding padding =
      version < kOutputsVersion ? even_padding(pad[0], pad[1]) : Padding{pad[0], pad[1], pad[2], pad[3]};
  return {kernel[0], kernel[1], stride[0], stride[1], padding, dilation[0], dilation[1]};
}

json write_qparams(const QParams& q) {
  return {{"scale", q.scale}, {"zero_point", q.zero_point}, {"quant_min", q.quant_min}, {"quant_max", q.quant_max}};
}

QParams read_qparams(JsonObject object) {
  QParams q;
  q.scale = object.float32("scale");
  q.zero_point = object.integer("zero_point");
  q.quant_min = object.integer("quant_min");
  q.quant_max = object.integer("quant_max");
  object.done();
  return q;
}

json write_node(const Int8Node& node, int version) {
  json out = {{"name", node.name},
              {"op", int8_op_name(node.op)},
              {"inputs", node.inputs},
              {"shape", {node.shape.c, node.shape.h, node.shape.w}},
              {"out", write_qparams(node.out)},
              {"clamp", {node.clamp_min, node.clamp_max}},
              {"float_output", node.float_output}};
  if (traits(node.op).windowed) out["window"] = write_window(node.window, version);
  if (has_groups(node, version)) out["groups"] = node.groups;
  if (node.op == Int8Op::matmul) out["transposed"] = node.transposed;
  if (node.op == Int8Op::slice) out["first_channel"] = node.first_channel;
  if (traits(node.op).has_factor) out["factor"] = {node.factor_h, node.factor_w};
  if (has_residual(node)) out["residual_multiplier"] = node.residual_multiplier;
  if (version >= kPackedVersion && has_weight(node.op)) out["weight_bits"] = node.weight_bits;
  if (version >= kSparseVersion && has_weight(node.op)) out["sparsity"] = node.two_of_four ? kTwoOfFour : kDense;
  if (node.op == Int8Op::lookup) out["function"] = node.function;
  return out;
}

/// Returns whether the text of `key` is `yes`. The only other allowed text is `no`.
bool read_choice(JsonObject& object, const char* key, const char* yes, const char* no) {
  const std::string choice = object.string(key);
  if (choice == yes) return true;
  if (choice == no) return false;
  throw data_error(fmt::format("{}: {} '{}', allowed are {}, {}", object.where(), key, choice, no, yes));
}

template <typename E, size_t N>
E read_named(JsonObject& object, const char* key, const std::array<Named<E>, N>& table) {
  const std::string name = object.string(key);
  try {
    return value_named(table, name, key);
  } catch (const Error& error) {
    throw data_error(fmt::format("{}: {}", object.where(), error.what()));
  }
}

Int8Op read_op(JsonObject& object, const std::string& node) {
  const std::string name = object.string("op");
  try {
    return int8_op_from_name(name);
  } catch (const Error& error) {
    throw data_error(fmt::format("{} '{}': {}", object.where(), node, error.what()));
  }
}

Int8Node read_node(JsonObject object, int version) {
  Int8Node node;
  node.name = object.string("name");
  node.op = read_op(object, node.name);
  node.inputs = object.integers("inputs");
  const std::vector<int> shape = object.integers("shape", 3);
  node.shape = {shape[0], shape[1], shape[2]};
  node.out = read_qparams(object.object("out"));
  const std::vector<int> clamp = object.integers("clamp", 2);
  node.clamp_min = clamp[0];
  node.clamp_max = clamp[1];
  node.float_output = object.boolean("float_output");
  if (traits(node.op).windowed) node.window = read_window(object.object("window"), version);
  if (has_groups(node, version)) node.groups = object.integer("groups");
  if (node.op == Int8Op::matmul) node.transposed = object.boolean("transposed");
  if (node.op == Int8Op::slice) node.first_channel = object.integer("first_channel");
  if (traits(node.op).has_factor) {
    const std::vector<int> factor = object.integers("factor", 2);
    node.factor_h = factor[0], node.factor_w = factor[1];
  }
  if (has_residual(node)) node.residual_multiplier = object.float32("residual_multiplier");
  if (version >= kPackedVersion && has_weight(node.op)) node.weight_bits = object.integer("weight_bits");
  if (version >= kSparseVersion && has_weight(node.op))
    node.two_of_four = read_choice(object, "sparsity", kTwoOfFour, kDense);
  if (node.op == Int8Op::lookup) node.function = object.string("function");
  object.done();
  return node;
}

json write_preprocessing(const Preprocessing& p, int version) {
  json out = {{"resize", p.resize}, {"crop", p.crop}, {"mean", p.mean}, {"std", p.std}};
  if (version < kOrientationVersion) return out;
  out["orientation"] = p.exif_orientation ? kExif : kAsStored;
  out["crop_margin"] = p.even_margin ? kHalfToEven : kDown;
  if (version < kFitVersion) return out;
  out["fit"] = name_in(kFits, p.fit);
  out["channel_order"] = name_in(kChannelOrders, p.order);
  return out;
}

Preprocessing read_preprocessing(JsonObject object, int version) {
  Preprocessing p;
  p.resize = object.integer("resize");
  p.crop = object.integer("crop");
  p.mean = object.float32s("mean");
  p.std = object.float32s("std");
  if (version >= kOrientationVersion) {
    p.exif_orientation = read_choice(object, "orientation", kExif, kAsStored);
    p.even_margin = read_choice(object, "crop_margin", kHalfToEven, kDown);
  }
  if (version >= kFitVersion) {
    p.fit = read_named(object, "fit", kFits);
    p.order = read_named(object, "channel_order", kChannelOrders);
  }
  object.done();
  return p;
}

json write_boxes(const std::optional<BoxHead>& head) {
  if (!head) return nullptr;
  json levels = json::array();
  for (const BoxHead::Level& level : head->levels) {
    levels.push_back({{"stride", level.stride}, {"boxes", level.boxes}, {"classes", level.classes}});
    if (head->kind == BoxHeadKind::yolox) levels.back()["objectness"] = level.objectness;
  }
  return {{"head", name_in(kBoxHeadKinds, head->kind)},
          {"levels", levels},
          {"score_threshold", head->score_threshold},
          {"iou_threshold", head->iou_threshold},
          {"max_boxes", head->max_boxes}};
}

BoxHead read_boxes(JsonObject object) {
  BoxHead head;
  head.kind = read_named(object, "head", kBoxHeadKinds);
  const json& levels = object.array("levels");
  for (size_t i = 0; i < levels.size(); ++i) {
    JsonObject level(levels[i], fmt::format("{}.levels[{}]", object.where(), i));
    head.levels.push_back({.stride = level.integer("stride"),
                           .boxes = level.integer("boxes"),
                           .objectness = head.kind == BoxHeadKind::yolox ? level.integer("objectness") : -1,
                           .classes = level.integer("classes")});
    level.done();
  }
  head.score_threshold = object.float32("score_threshold");
  head.iou_threshold = object.float32("iou_threshold");
  head.max_boxes = object.integer("max_boxes");
  object.done();
  return head;
}

int read_version(JsonObject& object) {
  const int version = object.integer("format_version");
  if (version >= 1 && version <= kCheckpointVersion) return version;
  throw data_error(fmt::format(
      "{}: written in format version {}, this octet reads versions 1 to {}: use an octet that reads version {}, or "
      "export the run again with this one (octet export)",
      object.where(), version, kCheckpointVersion, version));
}

Int8Node read_node_of(int version, JsonObject object) {
  const std::string where = object.where();
  Int8Node node = read_node(std::move(object), version);
  if (const int needed = traits(node.op).version; needed > version) {
    throw data_error(fmt::format("{}: a {} needs format version {}, the file says {}", where, int8_op_name(node.op),
                                 needed, version));
  }
  return node;
}

}  // namespace

int checkpoint_version(const Int8Graph& graph) {
  const bool last_classifies =
      is_classifier(graph) && graph.outputs.front() + 1 == static_cast<int>(graph.nodes.size());
  int version = last_classifies ? 1 : kOutputsVersion;
  const Preprocessing& p = graph.preprocessing;
  if (p.exif_orientation || p.even_margin) version = kOrientationVersion;
  if (p.fit != Fit::crop || p.order != ChannelOrder::rgb) version = kFitVersion;
  if (graph.boxes) version = kBoxesVersion;
  for (const Int8Node& node : graph.nodes)
    version = std::max({version, traits(node.op).version, node.window.pad.is_even() ? 1 : kOutputsVersion,
                        node.weight_bits == 8 ? 1 : kPackedVersion, node.two_of_four ? kSparseVersion : 1,
                        node.op == Int8Op::lookup && node.groups > 1 ? kChannelTablesVersion : 1});
  return version;
}

std::string write_checkpoint_json(const Int8Graph& graph) {
  const int version = checkpoint_version(graph);
  json nodes = json::array();
  for (const Int8Node& node : graph.nodes) nodes.push_back(write_node(node, version));
  for (const auto& [name, value] : graph.accuracies) {
    if (!std::isfinite(value)) throw data_error(fmt::format("checkpoint: accuracy '{}' is {}", name, value));
  }
  json document = {{"format_version", version},
                   {"name", graph.name},
                   {"recipe_hash", graph.recipe_hash},
                   {"accuracies", json::object_t(graph.accuracies.begin(), graph.accuracies.end())},
                   {"class_names", graph.class_names},
                   {"preprocessing", write_preprocessing(graph.preprocessing, version)},
                   {"nodes", nodes}};
  if (version >= kOutputsVersion) document["outputs"] = graph.outputs;
  if (version >= kBoxesVersion) document["boxes"] = write_boxes(graph.boxes);
  return write_json(document, "checkpoint");
}

Int8Graph read_checkpoint_json(std::string_view text, const std::string& where) {
  const json document = parse_json(text, where);
  JsonObject object(document, where);
  const int version = read_version(object);
  Int8Graph graph;
  graph.name = object.string("name");
  graph.recipe_hash = object.string("recipe_hash");
  graph.class_names = object.strings("class_names");
  graph.preprocessing = read_preprocessing(object.object("preprocessing"), version);
  JsonObject accuracies = object.object("accuracies");
  for (const auto& [name, value] : object.take("accuracies").items()) graph.accuracies[name] = accuracies.number(name);
  const json& nodes = object.array("nodes");
  for (size_t i = 0; i < nodes.size(); ++i) {
    graph.nodes.push_back(read_node_of(version, JsonObject(nodes[i], fmt::format("{}.nodes[{}]", where, i))));
  }
  const std::vector<int> last = {static_cast<int>(nodes.size()) - 1};
  graph.outputs = version < kOutputsVersion ? last : object.integers("outputs");
  if (version >= kBoxesVersion && !object.take("boxes").is_null()) graph.boxes = read_boxes(object.object("boxes"));
  object.done();
  return graph;
}

}  // namespace octet
