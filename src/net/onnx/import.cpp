// SPDX-License-Identifier: Apache-2.0
#include "src/net/onnx/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/net/onnx/network.h"
#include "src/net/onnx/rules.h"
#include "src/net/shapes.h"

namespace octet {
namespace {

using onnx::GraphProto;
using onnx::NodeProto;
using onnx::ValueInfoProto;

/// Quotes a text for YAML and Python.
std::string in_quotes(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  return quoted + "\"";
}

class Importer {
 private:
  [[noreturn]] void fail(const std::string& what) const { throw data_error(fmt::format("{}: {}", file_.name, what)); }

  /// Calls function() and turns its errors into errors of the file at `place`.
  template <typename Function>
  auto guarded(const std::string& place, const Function& function) {
    try {
      return function();
    } catch (const Error& error) {
      const std::string what = error.what();
      if (what.starts_with(file_.name + ": ")) throw;
      fail(place + what);
    }
  }

 public:
  Importer(OnnxFile& file, const std::vector<std::string>& outputs, QdqMarks* marks, int image_size)
      : file_(file), graph_(file.model->graph()), network_(file), outputs_(outputs), image_size_(image_size) {
    network_.marks = marks;
  }

  ImportedNetwork run() {
    collect_initializers();
    choose_outputs();
    find_live();
    take_input();
    const std::vector<OnnxValue> outputs = take_nodes();
    ImportedNetwork imported = guarded("", [&] { return network_.finish(outputs); });
    imported.graph.name = std::filesystem::path(file_.name).stem().string();
    imported.producer = shown_name(fmt::format("{} {}", file_.model->producer_name(), file_.model->producer_version()));
    imported.opset = file_.opset;
    return imported;
  }

 private:
  void collect_initializers() {
    for (const onnx::TensorProto& tensor : graph_.initializer()) {
      if (!network_.initializers.emplace(tensor.name(), &tensor).second)
        fail(fmt::format("two weights are called '{}'", shown_name(tensor.name())));
    }
  }

  /// Takes the file's outputs if none are chosen.
  void choose_outputs() {
    if (outputs_.empty()) {
      outputs_ = output_names(file_);
      if (outputs_.empty()) fail("has no outputs");
      return;
    }
    std::set<std::string> made;
    for (const NodeProto& node : graph_.node()) made.insert(node.output().begin(), node.output().end());
    std::set<std::string> chosen;
    for (const std::string& output : outputs_) {
      if (output.empty() || !made.contains(output))
        throw usage_error(fmt::format("{}: no node gives '{}', which is to be an output; expected a name of the file",
                                      file_.name, shown_name(output)));
      if (!chosen.insert(output).second)
        throw usage_error(fmt::format("{}: '{}' is to be an output twice", file_.name, shown_name(output)));
    }
    cut_ = true;
  }

  /// Finds the nodes that the outputs need, from the last to the first, and counts the readers of each name.
  void find_live() {
    live_.assign(static_cast<size_t>(graph_.node_size()), false);
    std::set<std::string> needed;
    for (const std::string& output : outputs_) {
      needed.insert(output);
      ++network_.uses[output];
    }
    for (int n = graph_.node_size() - 1; n >= 0; --n) {
      const NodeProto& node = graph_.node(n);
      for (const std::string& output : node.output())
        if (!output.empty() && needed.contains(output)) live_[static_cast<size_t>(n)] = true;
      if (!live_[static_cast<size_t>(n)]) continue;
      for (const std::string& input : node.input()) {
        needed.insert(input);
        ++network_.uses[input];
      }
    }
  }

  [[noreturn]] void fail_open(const ValueInfoProto& input, int axis) const {
    const auto& dims = input.type().tensor_type().shape();
    const std::string cure =
        network_.marks != nullptr
            ? fmt::format(
                  "python -m onnxruntime.tools.make_dynamic_shape_fixed --input_name {} --input_shape 1,{},H,W "
                  "{} FIXED.onnx gives it a size",
                  shell_word(printable(input.name())), dims.dim(1).dim_value(), shell_word(file_.name))
            : fmt::format(
                  "a recipe's data.image_size gives it, and octet inspect {} --image-size SIZE shows the network",
                  shell_word(file_.name));
    fail(fmt::format("input '{}': {} is open ('{}'), and octet's networks are for images of one size: {}",
                     shown_name(input.name()), axis == 2 ? "its height" : "its width",
                     shown_name(dims.dim(axis).dim_param()), cure));
  }

  /// Takes the one input that is not a weight: [N, C, H, W]. N may be open; H and W too if image_size_ gives them.
  void take_input() {
    const ValueInfoProto* input = nullptr;
    for (const ValueInfoProto& candidate : graph_.input()) {
      if (network_.initializers.contains(candidate.name())) continue;
      if (input != nullptr) {
        fail(fmt::format("has inputs '{}' and '{}'; expected one", shown_name(input->name()),
                         shown_name(candidate.name())));
      }
      input = &candidate;
    }
    if (input == nullptr) fail("has no input");
    const std::string where = fmt::format("input '{}'", shown_name(input->name()));
    const onnx::TypeProto_Tensor& type = input->type().tensor_type();
    const bool bytes = type.elem_type() == onnx::TensorProto::UINT8 && network_.marks == nullptr;
    if (!input->type().has_tensor_type() || (!bytes && !is_real_type(type.elem_type())))
      fail(where + ": expected images [N, C, H, W] of float32, float16, bfloat16, float64 or uint8");
    if (bytes)
      network_.note(where +
                    ": takes pixels of 0 to 255 as uint8, octet's network as float32: data.mean 0 and data.std "
                    "0.003921569 give it them");
    if (type.shape().dim_size() != 4)
      fail(fmt::format("{}: has {} dimensions; expected images [N, C, H, W]", where, type.shape().dim_size()));
    int sizes[3] = {};
    for (int i = 1; i < 4; ++i) {
      const auto& dim = type.shape().dim(i);
      const bool open = i >= 2 && (!dim.has_dim_value() || dim.dim_value() < 1);
      if (open && image_size_ == 0) fail_open(*input, i);
      if (open) {
        sizes[i - 1] = image_size_;
        is_open_ = true;
        continue;
      }
      if (!dim.has_dim_value() || dim.dim_value() < 1 || dim.dim_value() > kMaxDimension) {
        fail(
            fmt::format("{}: dimension {} of [N, C, H, W] is {}; expected a number of 1 to {}", where, i,
                        dim.has_dim_value() ? std::to_string(dim.dim_value()) : "'" + shown_name(dim.dim_param()) + "'",
                        kMaxDimension));
      }
      sizes[i - 1] = static_cast<int>(dim.dim_value());
    }
    if (type.shape().dim(0).has_dim_value()) network_.batch = type.shape().dim(0).dim_value();
    Node node{.op = Op::input, .shape = {sizes[0], sizes[1], sizes[2]}};
    OnnxValue value = guarded(where + ": ", [&] { return network_.append(std::move(node), {input->name(), "input"}); });
    value.direct = false;
    network_.values.emplace(input->name(), value);
  }

  /// Imports nodes and outputs in order. The error for an operator that octet does not have says where the network
  /// could end.
  std::vector<OnnxValue> take_nodes() {
    int n = 0;
    try {
      for (; n < graph_.node_size(); ++n)
        if (live_[static_cast<size_t>(n)]) take(graph_.node(n));
      std::vector<OnnxValue> outputs;
      for (const std::string& output : outputs_) outputs.push_back(take_output(output));
      return outputs;
    } catch (const Error& error) {
      if (cut_) throw;
      const NearestValues nearest = where_to_end(n + 1);
      if (nearest.names.empty()) throw;
      OnnxEndsTooLate late(Error(error.code(), error.what() + advice_to_end(nearest)), nearest.names);
      late.left_out = nearest.left_out;
      throw late;
    }
  }

  /// Returns where the network could end, after it tried the remaining nodes for values that do not depend on the
  /// refused one.
  NearestValues where_to_end(int next) {
    for (int n = next; n < graph_.node_size(); ++n) {
      if (!live_[static_cast<size_t>(n)]) continue;
      try {
        take(graph_.node(n));
      } catch (const Error&) {  // only the first error is reported
      }
    }
    return nearest_values(network_, outputs_);
  }

  std::string advice_to_end(const NearestValues& nearest) const {
    std::vector<std::string> names, quoted;
    bool commas = false;  // --outputs separates names by commas
    for (const std::string& name : nearest.names) {
      names.push_back(printable(name));
      quoted.push_back(in_quotes(names.back()));
      commas = commas || name.find(',') != std::string::npos;
    }
    const std::string list = fmt::format("[{}]", fmt::join(quoted, ", "));
    const std::string stays = fmt::format(
        "; no layers stand behind it: decoding and suppressing boxes, or picking a class, stays outside octet. Leave "
        "it to your program ({}) and end the ",
        fmt::join(nearest.left_out, ", "));
    const std::string file = shell_word(file_.name), ends = shell_word(fmt::format("{}", fmt::join(names, ",")));
    if (network_.marks != nullptr && commas)
      return fmt::format("{}file before it: onnx.utils.extract_model, output_names={}", stays, list);
    if (network_.marks != nullptr)
      return fmt::format("{}network before it: octet export {} --outputs {} --out int8.safetensors", stays, file, ends);
    const std::string shown = fmt::format("; octet inspect {} --outputs {}{}", file, ends,
                                          is_open_ ? fmt::format(" --image-size {}", image_size_) : "");
    return fmt::format("{}network before it: in a recipe model.outputs: {}{}", stays, list, commas ? "" : shown);
  }

  void take(const NodeProto& proto) {
    NodeReader node(proto, network_);
    if (proto.output_size() == 0 || proto.output(0).empty()) node.fail("has no first output");
    const auto rule = rules().find(proto.op_type());
    const bool own = proto.domain().empty() || proto.domain() == "ai.onnx";
    if (const std::string cure = cure_of_other_form(proto.op_type()); !cure.empty()) node.fail(cure);
    if (!own) node.fail(fmt::format("an operator of '{}'; octet imports ONNX's own", shown_name(proto.domain())));
    if (rule == rules().end()) {
      std::vector<std::string_view> names;
      for (const auto& [name, function] : rules()) names.push_back(name);
      node.fail(fmt::format("octet has no such operator; it imports {}", fmt::join(names, ", ")));
    }
    guarded(node.label() + ": ", [&] {
      rule->second(node);
      node.done();
    });
  }

  OnnxValue take_output(const std::string& name) {
    const std::string where = fmt::format("output '{}'", shown_name(name));
    const auto found = network_.values.find(name);
    if (found == network_.values.end()) fail(where + ": no node gives it");
    OnnxValue& value = found->second;
    const bool image = value.node >= 0 && value.heads == 0 && value.groups == 0 && network_.marks == nullptr;
    if (image && !value.plain() && !value.erf)
      value = guarded(where + ": ", [&] {
        return onnx_rules::with_numbers_applied(network_, value, {name, name + "/scale"});
      });
    if (const std::string fault = output_fault(found->second); !fault.empty())
      fail(fmt::format("{}: {}", where, fault));
    return found->second;
  }

  OnnxFile& file_;
  const GraphProto& graph_;
  Network network_;
  std::vector<std::string> outputs_;
  bool cut_ = false;  ///< the outputs are not the file's own
  const int image_size_;
  bool is_open_ = false;  ///< the file does not give height or width
  std::vector<bool> live_;
};

}  // namespace

bool has_onnx() { return true; }

ImportedNetwork import_file(OnnxFile& file, const std::vector<std::string>& outputs, QdqMarks* marks, int image_size) {
  return Importer(file, outputs, marks, image_size).run();
}

OnnxFile open_onnx_file(const std::string& path) {
  const std::string bytes = read_file(path);
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  return open_onnx(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), path, folder);
}

ImportedNetwork import_onnx(const std::string& path, const std::vector<std::string>& outputs, int image_size) {
  OnnxFile file = open_onnx_file(path);
  return import_file(file, outputs, nullptr, image_size);
}

ImportedNetwork parse_onnx(const std::byte* data, size_t size, const std::string& name,
                           const std::vector<std::string>& outputs, int image_size) {
  OnnxFile file = open_onnx(data, size, name, "");
  return import_file(file, outputs, nullptr, image_size);
}

std::vector<std::string> output_names(const OnnxFile& file) {
  std::vector<std::string> names;
  for (const ValueInfoProto& output : file.model->graph().output()) names.push_back(output.name());
  return names;
}

void name_outputs(Int8Graph& graph, const std::vector<std::string>& names) {
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    const std::string& name = names.at(o);
    const bool taken = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                   [&](const Int8Node& node) { return node.name == name; });
    if (!taken && !name.empty() && printable(name) == name)
      graph.nodes[static_cast<size_t>(graph.outputs[o])].name = name;
  }
}

void name_outputs(Int8Graph& graph, const std::string& path, const std::vector<std::string>& outputs) {
  name_outputs(graph, outputs.empty() ? output_names(open_onnx_file(path)) : outputs);
}

}  // namespace octet
