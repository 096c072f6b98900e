#include "src/onnx/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <set>

#include "src/common/error.h"
#include "src/common/files.h"
#include "src/graph/limits.h"
#include "src/onnx/importer.h"
#include "src/onnx/rules.h"

namespace octet {
namespace {

using onnx::GraphProto;
using onnx::NodeProto;
using onnx::ValueInfoProto;

class Importer {
 private:
  [[noreturn]] void fail(const std::string& what) const { throw data_error(fmt::format("{}: {}", file_.name, what)); }

  /// What the graph refuses, as the file's fault, at its place.
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
  Importer(OnnxFile& file, QdqMarks* marks) : file_(file), graph_(file.model->graph()), network_(file) {
    network_.marks = marks;
  }

  ImportedNetwork run() {
    collect_initializers();
    find_live();
    take_input();
    for (int n = 0; n < graph_.node_size(); ++n)
      if (live_[static_cast<size_t>(n)]) take(graph_.node(n));
    std::vector<OnnxValue> outputs;
    for (const ValueInfoProto& output : graph_.output()) outputs.push_back(take_output(output.name()));
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

  /// Nodes that the outputs need, from the last to the first; and how many of them read each name.
  void find_live() {
    if (graph_.output_size() == 0) fail("has no outputs");
    live_.assign(static_cast<size_t>(graph_.node_size()), false);
    std::set<std::string> needed;
    for (const ValueInfoProto& output : graph_.output()) {
      needed.insert(output.name());
      ++network_.uses[output.name()];
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

  /// The one input that is no weight: [N, C, H, W], where only N may be open.
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
    if (!input->type().has_tensor_type() || type.elem_type() != onnx::TensorProto::FLOAT)
      fail(where + ": expected float32 images [N, C, H, W]");
    if (type.shape().dim_size() != 4)
      fail(fmt::format("{}: has {} dimensions; expected images [N, C, H, W]", where, type.shape().dim_size()));
    int sizes[3] = {};
    for (int i = 1; i < 4; ++i) {
      const auto& dim = type.shape().dim(i);
      if (!dim.has_dim_value() || dim.dim_value() < 1 || dim.dim_value() > kMaxDimension) {
        fail(fmt::format(
            "{}: dimension {} of [N, C, H, W] is {}; expected a number of 1 to {}: only the batch may be "
            "open",
            where, i, dim.has_dim_value() ? std::to_string(dim.dim_value()) : "'" + shown_name(dim.dim_param()) + "'",
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

  void take(const NodeProto& proto) {
    NodeReader node(proto, network_);
    if (proto.output_size() == 0 || proto.output(0).empty()) node.fail("has no first output");
    const auto rule = rules().find(proto.op_type());
    const bool own = proto.domain().empty() || proto.domain() == "ai.onnx";
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
    if (found->second.node < 0) fail(where + ": a constant, whatever the image is");
    if (found->second.groups != 0) fail(where + ": has five dimensions");
    if (found->second.heads != 0) fail(where + ": is in heads of attention; expected a picture [N, C, H, W]");
    if (found->second.pad != Padding{}) fail(where + ": comes from a Pad; expected a layer behind it");
    if (!found->second.plain()) fail(where + ": an activation times or plus a number; expected a layer behind it");
    if (found->second.bounded() || found->second.codes) fail(where + ": expected reals, without a bound of their own");
    return found->second;
  }

  OnnxFile& file_;
  const GraphProto& graph_;
  Network network_;
  std::vector<bool> live_;
};

}  // namespace

ImportedNetwork import_file(OnnxFile& file, QdqMarks* marks) { return Importer(file, marks).run(); }

OnnxFile open_onnx_file(const std::string& path) {
  const std::string bytes = read_file(path);
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  return open_onnx(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), path, folder);
}

ImportedNetwork import_onnx(const std::string& path) {
  OnnxFile file = open_onnx_file(path);
  return import_file(file, nullptr);
}

ImportedNetwork parse_onnx(const std::byte* data, size_t size, const std::string& name) {
  OnnxFile file = open_onnx(data, size, name, "");
  return import_file(file, nullptr);
}

}  // namespace octet
