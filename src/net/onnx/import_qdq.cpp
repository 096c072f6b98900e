// SPDX-License-Identifier: Apache-2.0
// A quantized network, imported as a Graph with QdqMarks, becomes an Int8Graph: every value with a scale becomes a
// node, and an Add with the convolution before it becomes a convolution with a residual. Constants are computed as in
// src/quant/convert.cpp: multiplier = x scale * weight scale / y scale, in double and rounded once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <locale>
#include <optional>
#include <sstream>
#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/net/onnx/network.h"
#include "src/net/onnx/rules.h"
#include "src/net/op_traits.h"
#include "src/quant/node_constants.h"

namespace octet {
namespace {

class Int8Maker {
 public:
  Int8Maker(const std::string& file, const ImportedNetwork& network, const QdqMarks& marks)
      : file_(file),
        graph_(network.graph),
        weights_(network.weights),
        marks_(marks),
        readers_(reader_counts(network.graph)) {
    result_.notes = network.notes;
    result_.graph.name = graph_.name;
  }

  ImportedInt8 run() {
    for (int n = 0; n < count(); ++n) {
      const bool weighted = has_weight(at(n).op) && !is_output(n) && mark(n) == nullptr;
      merged_.push_back(weighted && readers_[static_cast<size_t>(n)] == 1 && feeds_add(n));
      flattened_.push_back(follow_flatten(n));
      place_.push_back(-1);
      if (merged_.back()) continue;
      result_.graph.nodes.push_back(make(n));
      place_.back() = static_cast<int>(result_.graph.nodes.size()) - 1;
      const auto codes = marks_.codes.find(at(n).name);
      result_.codes.push_back(codes == marks_.codes.end() ? "" : codes->second);
    }
    for (const int output : graph_.outputs) result_.graph.outputs.push_back(place_[static_cast<size_t>(output)]);
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(int n, const std::string& what) const {
    throw data_error(fmt::format("{}: node '{}' ({}): {}", file_, at(n).name, op_name(at(n).op), what));
  }

  int count() const { return static_cast<int>(graph_.nodes.size()); }
  bool is_output(int n) const {
    return std::find(graph_.outputs.begin(), graph_.outputs.end(), n) != graph_.outputs.end();
  }

  /// Whether a node gives floats: an output that no node reads, if it is the only output or has no scale.
  bool gives_floats(int n) const {
    const bool alone = graph_.outputs.size() == 1;
    return is_output(n) && readers_[static_cast<size_t>(n)] == 0 &&
           (alone || (mark(n) == nullptr && !passes_codes_on(at(n).op)));
  }

  const Node& at(int n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  bool is_merged(int n) const { return merged_[static_cast<size_t>(n)]; }

  const QdqMarks::Edge* mark(int n) const {
    const auto found = marks_.edges.find(at(n).name);
    return found == marks_.edges.end() ? nullptr : &found->second;
  }

  bool feeds_add(int n) const {
    return std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& node) {
      return node.op == Op::add && std::find(node.inputs.begin(), node.inputs.end(), n) != node.inputs.end();
    });
  }

  /// Returns the qparams of a node's output; nodes that pass codes on have those of their input.
  const QParams& edge(int n) const {
    if (const QdqMarks::Edge* marked = mark(n)) return marked->qparams;
    if (passes_codes_on(at(n).op) || marks_.picks.contains(at(n).name)) return edge(at(n).inputs[0]);
    fail(n, std::string("its output has no scale: expected a QuantizeLinear and a DequantizeLinear behind it; ") +
                kQuantizeByOnnxRuntime);
  }

  Int8Node make(int n) {
    int layer = n, residual = -1;
    if (at(n).op == Op::add) {
      for (const int i : {1, 0}) {
        if (residual >= 0 || !is_merged(at(n).inputs[static_cast<size_t>(i)])) continue;
        layer = at(n).inputs[static_cast<size_t>(i)];
        residual = at(n).inputs[static_cast<size_t>(1 - i)];
      }
    }
    const Node& node = at(layer);
    const std::optional<Int8Op> op = traits(node.op).int8;
    if (!op) fail(layer, "has no int8 form; leave it out of the network");
    Int8Node y = int8_node(node, *op);
    std::vector<int> inputs = node.inputs;
    if (residual >= 0) inputs.push_back(residual);
    for (const int input : inputs) {
      edge(input);
      y.inputs.push_back(place_[static_cast<size_t>(input)]);
    }
    set_output(n, y);
    const double y_scale = y.float_output ? 1.0 : y.out.scale;
    if (has_weight(node.op)) set_weights(layer, y_scale, y);
    if (residual >= 0) y.residual_multiplier = static_cast<float>(edge(residual).scale / y_scale);
    if (node.op == Op::lookup) {
      y.table =
          lookup_tables(node.function, {FunctionScale()}, edge(node.inputs[0]), y.out, {y.clamp_min, y.clamp_max});
      y.function = function_text(node.function);
    }
    if (node.op == Op::softmax) y.exponentials = softmax_table(edge(node.inputs[0]));
    set_multipliers(node, y_scale, y);
    if (const QdqMarks::Edge* marked = mark(n); marked != nullptr && marked->factor != 1)
      y.multiplier = {static_cast<float>(edge(node.inputs[0]).scale * marked->factor / y_scale)};
    return y;
  }

  /// Sets qparams and clamp. The image has its bounds as the range of its codes and no clamp.
  void set_output(int n, Int8Node& y) {
    y.float_output = gives_floats(n);
    const QdqMarks::Edge* marked = mark(n);
    if (y.float_output) {
      if (marked != nullptr && (std::isfinite(marked->low) || std::isfinite(marked->high)))
        fail(n,
             "a Relu or Clip before the QuantizeLinear of an output, which octet gives as unbounded reals; end the "
             "file before the Relu or Clip (onnx.utils.extract_model) and bound octet's outputs in your program");
      if (marked != nullptr)
        result_.notes.push_back(fmt::format("{}: the logits are not quantized in octet", at(n).name));
      return;
    }
    y.out = edge(n);
    y.clamp_min = y.out.quant_min;
    y.clamp_max = y.out.quant_max;
    if (marked != nullptr && std::isfinite(marked->low))
      y.clamp_min = std::max(y.clamp_min, quantize(marked->low, y.out));
    if (marked != nullptr && std::isfinite(marked->high))
      y.clamp_max = std::min(y.clamp_max, quantize(marked->high, y.out));
    if (marked != nullptr && marked->codes) {  // compared as reals, because one bound may be infinite
      y.clamp_min = static_cast<int32_t>(std::max(static_cast<float>(y.clamp_min), marked->codes->first));
      y.clamp_max = static_cast<int32_t>(std::min(static_cast<float>(y.clamp_max), marked->codes->second));
    }
    if (passes_codes_on(y.op)) pass_codes_on(n, y);
    if (y.op != Int8Op::input) return;
    y.out.quant_min = y.clamp_min;
    y.out.quant_max = y.clamp_max;
  }

  /// Gives a node that passes codes on the range of its input. Only a max_pool may have a clamp.
  void pass_codes_on(int n, Int8Node& y) const {
    const Int8Node& x = result_.graph.nodes[static_cast<size_t>(y.inputs[0])];
    if (y.out != edge(at(n).inputs[0]))
      fail(n, std::string("its scale is not that of its input, whose codes it passes on; ") + kQuantizeByOnnxRuntime);
    y.out = x.out;
    y.clamp_min = std::max(y.clamp_min, x.out.quant_min);
    y.clamp_max = std::min(y.clamp_max, x.out.quant_max);
    if (y.op == Int8Op::max_pool) return;
    if (y.clamp_min > x.clamp_min || y.clamp_max < x.clamp_max)
      fail(n, std::string("bounds codes that it only passes on; ") + kQuantizeByOnnxRuntime);
    y.clamp_min = x.out.quant_min;
    y.clamp_max = x.out.quant_max;
  }

  void set_multipliers(const Node& node, double y_scale, Int8Node& y) const {
    if (has_weight(y.op)) return;
    if (y.op == Int8Op::prelu) {
      const std::vector<float> slopes = to_float(weights_.tensors.at(node.name + ".weight"));
      y.multiplier = prelu_multipliers(node, slopes, edge(node.inputs[0]).scale, y_scale);
      return;
    }
    const auto scale = [&](int input) { return edge(input).scale; };
    for (const double undivided : undivided_multipliers(graph_, node, y.op, scale))
      y.multiplier.push_back(static_cast<float>(undivided / y_scale));
  }

  void set_weights(int n, double y_scale, Int8Node& y) {
    const Node& node = at(n);
    const auto outputs = static_cast<size_t>(node.out_channels);
    const std::vector<float> reals = to_float(weights_.tensors.at(node.name + ".weight"));
    const std::vector<float> bias =
        node.bias ? to_float(weights_.tensors.at(node.name + ".bias")) : std::vector<float>(outputs, 0.0f);
    y.weight_scale = marks_.weight_scales.at(node.name);
    const double x_scale = edge(node.inputs[0]).scale;
    const auto [channels, taps] = columns(node);
    long lowest = 0;
    y.weight.resize(reals.size());
    for (size_t k = 0; k < outputs; ++k) {
      y.multiplier.push_back(static_cast<float>(x_scale * y.weight_scale[k] / y_scale));
      y.bias.push_back(static_cast<float>(bias[k] / y_scale));
      for (size_t tap = 0; tap < taps; ++tap)
        for (size_t c = 0; c < channels; ++c) {  // [K, C, taps] -> [K, taps, C]
          const double code = std::nearbyint(reals[(k * channels + c) * taps + tap] / y.weight_scale[k]);
          if (!(code >= -128 && code <= 127))
            fail(n,
                 fmt::format("a weight has code {}, beyond int8; quantize its weights to int8 with zero points of 0, "
                             "as ONNX Runtime's quantize_static does with weight_type=QuantType.QInt8",
                             code));
          lowest += code == -128;
          y.weight[(k * taps + tap) * channels + c] = static_cast<int8_t>(std::max(code, -127.0));
        }
    }
    if (lowest > 0) result_.notes.push_back(fmt::format("{}: {} weights of -128 become -127", node.name, lowest));
  }

  /// Returns the input's shape of a flatten before node n, after which octet's codes are in H, W, C order and the
  /// file's in C, H, W order; h * w is at most 1 if there is none. Only elementwise operators may follow it before a
  /// linear layer.
  Shape follow_flatten(int n) const {
    const Node& node = at(n);
    if (node.op == Op::flatten && at(node.inputs[0]).shape != node.shape) return at(node.inputs[0]).shape;
    if (node.inputs.empty() || node.op == Op::linear) return {};
    const Shape& before = flattened_[static_cast<size_t>(node.inputs[0])];
    bool moved = before.h * before.w > 1, same = true;
    for (const int input : node.inputs) {
      const Shape& other = flattened_[static_cast<size_t>(input)];
      moved = moved || other.h * other.w > 1;
      same = same && other == before;
    }
    if (!moved) return {};
    const bool alone = node.op == Op::flatten || node.op == Op::requantize || node.op == Op::lookup ||
                       ((node.op == Op::add || node.op == Op::mul) && same);
    if (!alone)
      fail(n,
           "stands behind a Flatten of several pixels, whose codes lie in another order in octet; expected a Gemm or "
           "MatMul: put the Flatten behind it");
    return before;
  }

  /// Returns the channels and taps of a row of weights; after a flatten the taps of a linear are the pixels.
  std::pair<size_t, size_t> columns(const Node& node) const {
    const Shape& from = at(node.inputs[0]).shape;
    if (node.op == Op::conv2d) {
      return {static_cast<size_t>(from.c / node.groups),
              static_cast<size_t>(node.window.kernel_h) * static_cast<size_t>(node.window.kernel_w)};
    }
    const Shape& flat = flattened_[static_cast<size_t>(node.inputs[0])];
    if (flat.h * flat.w <= 1) return {static_cast<size_t>(from.c), 1};
    return {static_cast<size_t>(flat.c), static_cast<size_t>(flat.h) * static_cast<size_t>(flat.w)};
  }

  const std::string file_;
  const Graph& graph_;
  const TensorFile& weights_;
  const QdqMarks& marks_;
  const std::vector<int> readers_;
  std::vector<bool> merged_;      ///< of each node, whether it becomes one with the Add that reads it
  std::vector<int> place_;        ///< of each node, its index in the Int8Graph; -1: none
  std::vector<Shape> flattened_;  ///< of each node, what follow_flatten() returns
  ImportedInt8 result_;
};

/// Moves the scale and bounds after a node that only copies codes to its input, if that has none: a transposed
/// convolution is a layer and a copy. Going through the nodes backwards moves a mark over several copies.
void move_marks_before_copies(const Graph& graph, QdqMarks& marks) {
  const std::vector<int> readers = reader_counts(graph);
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (!passes_codes_on(node->op)) continue;
    const auto from = static_cast<size_t>(node->inputs[0]);
    const auto marked = marks.edges.find(node->name);
    if (marked == marks.edges.end() || readers[from] != 1 || marks.edges.contains(graph.nodes[from].name)) continue;
    auto moved = marks.edges.extract(marked);
    moved.key() = graph.nodes[from].name;
    marks.edges.insert(std::move(moved));
  }
}

std::vector<float> numbers(const std::string& text) {
  std::istringstream in(text);
  in.imbue(std::locale::classic());
  std::vector<float> values;
  for (float value = 0; in >> value;) values.push_back(value);
  return values;
}

/// Reads what octet adds to its files (src/net/onnx/writer.cpp).
Preprocessing read_preprocessing(const OnnxFile& file, int channels, Int8Graph& graph,
                                 std::vector<std::string>& notes) {
  Preprocessing p;
  for (const onnx::StringStringEntryProto& entry : file.model->metadata_props()) {
    if (entry.key() == "mean") p.mean = numbers(entry.value());
    if (entry.key() == "std") p.std = numbers(entry.value());
    if (entry.key() == "orientation") p.exif_orientation = entry.value() == "exif";
    if (entry.key() == "crop_margin") p.even_margin = entry.value() == "half_to_even";
    for (const Named<Fit>& fit : kFits)
      if (entry.key() == "fit" && entry.value() == fit.name) p.fit = fit.value;
    if (entry.key() == "channel_order" && entry.value() == "bgr") p.order = ChannelOrder::bgr;
    const std::vector<float> number = numbers(entry.value());
    const int size = number.size() == 1 && number[0] >= 0 && number[0] < 1e6f ? static_cast<int>(number[0]) : 0;
    if (entry.key() == "resize") p.resize = size;
    if (entry.key() == "crop") p.crop = size;
    if (entry.key() != "class_names") continue;
    std::istringstream lines(entry.value());
    for (std::string line; std::getline(lines, line);) graph.class_names.push_back(line);
  }
  if (!p.mean.empty() || !p.std.empty()) return p;
  notes.push_back("the file says no mean and std: images are read as pixel / 255");
  p.mean.assign(static_cast<size_t>(channels), 0.0f);
  p.std.assign(static_cast<size_t>(channels), 1.0f);
  return p;
}

/// Returns what to do with a file that is quantized in another form than QDQ, or "".
std::string cure_of_form(const OnnxFile& file) {
  for (const onnx::NodeProto& node : file.model->graph().node())
    if (std::string cure = cure_of_other_form(node.op_type()); !cure.empty()) return cure;
  return "";
}

bool is_float(const OnnxFile& file) {
  const auto& nodes = file.model->graph().node();
  const bool has_codes = std::any_of(nodes.begin(), nodes.end(), [](const onnx::NodeProto& node) {
    return node.op_type() == "QuantizeLinear" || node.op_type() == "DequantizeLinear";
  });
  return !has_codes && cure_of_form(file).empty();
}

std::string describe_float(const OnnxFile& file) {
  return fmt::format(
      "a float network; octet quantize {} --images FOLDER quantizes it by images alone, octet train RECIPE --set "
      "model.name=onnx --set model.onnx={} trains it (with --set train.epochs=0 quantized from the start), octet "
      "inspect "
      "{} shows it",
      shell_word(file.name), shell_word(file.name), shell_word(file.name));
}

ImportedInt8 import_quantized(OnnxFile file, const std::vector<std::string>& outputs) {
  if (is_float(file)) throw data_error(fmt::format("{}: {}", file.name, describe_float(file)));
  QdqMarks marks;
  const ImportedNetwork network = import_file(file, outputs, &marks);
  move_marks_before_copies(network.graph, marks);
  ImportedInt8 result = Int8Maker(file.name, network, marks).run();
  // octet's own files name the nodes, and may call a single output "logits" whatever its node is called.
  if (!outputs.empty() || file.model->producer_name() != "octet")
    name_outputs(result.graph, outputs.empty() ? output_names(file) : outputs);
  result.graph.own_names = true;
  result.graph.preprocessing = read_preprocessing(file, result.graph.input_shape().c, result.graph, result.notes);
  try {
    validate(result.graph);
  } catch (const Error& error) {
    throw data_error(fmt::format("{}: {}", file.name, error.what()));
  }
  return result;
}

}  // namespace

std::string describe_onnx(const std::string& path) {
  const OnnxFile file = open_onnx_file(path);
  if (is_float(file)) return describe_float(file);
  if (std::string cure = cure_of_form(file); !cure.empty()) return cure;
  return fmt::format(
      "a quantized network, which is not trained; octet run and bench take it, octet export {} --out int8.safetensors "
      "makes a checkpoint of it",
      shell_word(path));
}

bool is_float_onnx(const std::string& path) { return is_float(open_onnx_file(path)); }

ImportedInt8 import_qdq(const std::string& path, const std::vector<std::string>& outputs) {
  return import_quantized(open_onnx_file(path), outputs);
}

ImportedInt8 parse_qdq(const std::byte* data, size_t size, const std::string& name) {
  return import_quantized(open_onnx(data, size, name, ""), {});
}

}  // namespace octet
