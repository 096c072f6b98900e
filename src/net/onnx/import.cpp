// SPDX-License-Identifier: Apache-2.0
#include "src/net/onnx/onnx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

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

class Importer {
 private:
  [[noreturn]] void fail(const std::string& what) const { throw data_error(fmt::format("{}: {}", file_.name, what)); }

  /// Calls function() and turns its errors into errors of the file at `place`.
  template <typename FunctionKind>
  auto guarded(const std::string& place, const FunctionKind& function) {
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
    refuse_other_forms();
    take_input();
    const std::vector<OnnxValue> outputs = take_nodes();
    require_different(outputs);
    ImportedNetwork imported = guarded("", [&] { return network_.finish(outputs); });
    imported.graph.name = std::filesystem::path(file_.name).stem().string();
    imported.graph.file_outputs = outputs_;
    imported.producer = shown_name(fmt::format("{} {}", file_.model->producer_name(), file_.model->producer_version()));
    imported.opset = file_.opset;
    imported.own_image_size = own_size_;
    if (is_channels_last_) imported.unlike = "its images are [N, H, W, C] in the file";
    for (size_t o = 0; o < outputs.size() && imported.unlike.empty(); ++o)
      if (outputs[o].softmax || outputs[o].channels_last)
        imported.unlike =
            fmt::format("output '{}' is {} in the file", shown_name(outputs_[o]),
                        outputs[o].softmax ? "behind a Softmax or LogSoftmax, which octet leaves out" : "[N, H, W, C]");
    return imported;
  }

  /// Returns the height and width that the file gives where image_size was taken in their place; else 0.
  int own_size() const { return own_size_; }

 private:
  void collect_initializers() {
    for (const onnx::TensorProto& tensor : graph_.initializer()) {
      if (!network_.initializers.emplace(tensor.name(), &tensor).second)
        fail(fmt::format("two weights are called '{}': export the network again", shown_name(tensor.name())));
    }
  }

  /// Takes the file's outputs if none are chosen.
  void choose_outputs() {
    if (outputs_.empty()) {
      outputs_ = output_names(file_);
      if (outputs_.empty()) fail("has no outputs: export the network again");
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
        throw usage_error(
            fmt::format("{}: '{}' is to be an output twice: name it once", file_.name, shown_name(output)));
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

  /// Refuses a network that is quantized in another form than QDQ at its first such node: other nodes of that form,
  /// which may stand before it, would be refused for reasons that hide the cure.
  void refuse_other_forms() {
    for (int n = 0; n < graph_.node_size(); ++n) {
      const NodeProto& node = graph_.node(n);
      if (!live_[static_cast<size_t>(n)]) continue;
      if (const std::string cure = cure_of_other_form(node.op_type()); !cure.empty())
        NodeReader(node, network_).fail(cure);
    }
  }

  /// Refuses outputs that are one value under two names, or one name twice.
  void require_different(const std::vector<OnnxValue>& outputs) const {
    std::map<int, std::string> names;  // by the nodes of the Graph
    std::vector<std::string> once;
    std::string twice;
    for (size_t o = 0; o < outputs.size(); ++o) {
      const auto [first, is_new] = names.emplace(outputs[o].node, outputs_[o]);
      if (is_new) once.push_back(outputs_[o]);
      if (!is_new && twice.empty())
        twice = fmt::format("outputs '{}' and '{}' are one value, which octet gives once", shown_name(first->second),
                            shown_name(outputs_[o]));
    }
    if (!twice.empty())
      fail(fmt::format("{}: name one of them for both, {}", twice, how_to_end_at(network_, once, open_size_)));
  }

  [[noreturn]] void fail_open(const ValueInfoProto& input, int axis, const char* side) const {
    const auto& dims = input.type().tensor_type().shape();
    const std::string sizes = dims.dim_size() == 3 ? fmt::format("1,{},W", dims.dim(1).dim_value())
                              : is_channels_last_  ? fmt::format("1,H,W,{}", dims.dim(3).dim_value())
                                                   : fmt::format("1,{},H,W", dims.dim(1).dim_value());
    const std::string cure =
        network_.marks != nullptr
            ? fmt::format(
                  "python -m onnxruntime.tools.make_dynamic_shape_fixed --input_name {} --input_shape {} "
                  "{} FIXED.onnx gives it a size",
                  shell_word(printable(input.name())), sizes, shell_word(file_.name))
            : fmt::format(
                  "a recipe's data.image_size gives it, and octet inspect {} --image-size SIZE shows the network",
                  shell_word(file_.name));
    fail(fmt::format("input '{}': {} is open ('{}'), and octet's networks are for images of one size: {}",
                     shown_name(input.name()), side, shown_name(dims.dim(axis).dim_param()), cure));
  }

  /// Takes the one input that is not a weight: [N, C, H, W], [N, H, W, C], [N, C, W] or [N, C]. N may be open; H and W
  /// too if image_size_ gives them, which also stands in place of the one square size that a float file says.
  void take_input() {
    const ValueInfoProto* input = nullptr;
    for (const ValueInfoProto& candidate : graph_.input()) {
      if (network_.initializers.contains(candidate.name())) continue;
      if (input != nullptr) {
        fail(fmt::format(
            "has inputs '{}' and '{}'; octet's networks take one: export the network with the images as its only "
            "input, or cut what joins the others off, onnx.utils.extract_model",
            shown_name(input->name()), shown_name(candidate.name())));
      }
      input = &candidate;
    }
    if (input == nullptr) fail("has no input: export the network with images as its input");
    const std::string where = fmt::format("input '{}'", shown_name(input->name()));
    const onnx::TypeProto_Tensor& type = input->type().tensor_type();
    const bool bytes = type.elem_type() == onnx::TensorProto::UINT8 && network_.marks == nullptr;
    if (!input->type().has_tensor_type() || (!bytes && !is_real_type(type.elem_type())))
      fail(where +
           ": expected images [N, C, H, W] of float32, float16, bfloat16, float64 or, before quantizing, uint8: export "
           "the network with one of these as the type of its input");
    if (bytes)
      network_.note(where +
                    ": takes pixels of 0 to 255 as uint8, octet's network as float32: data.mean 0 and data.std "
                    "0.003921569 give it them");
    const int rank = type.shape().dim_size();
    if (rank < 2 || rank > 4)
      fail(
          fmt::format("{}: has {} dimensions; expected images [N, C, H, W] or [N, H, W, C], rows [N, C, W] or "
                      "vectors [N, C]: export the network with a batch of those as its input",
                      where, rank));
    is_channels_last_ = rank == 4 && is_turned(graph_, input->name());
    // For channels, height and width the axis of the file; 0: it has none.
    const std::array<int, 3> axes = is_channels_last_ ? std::array{3, 1, 2}
                                    : rank == 4       ? std::array{1, 2, 3}
                                                      : std::array{1, 0, rank == 3 ? 2 : 0};
    int sizes[3] = {1, 1, 1};
    for (size_t i = 0; i < axes.size(); ++i) {
      if (axes[i] == 0) continue;
      const auto& dim = type.shape().dim(axes[i]);
      const bool open = i >= 1 && (!dim.has_dim_value() || dim.dim_value() < 1);
      if (open && image_size_ == 0) fail_open(*input, axes[i], i == 1 ? "its height" : "its width");
      if (open) {
        sizes[i] = image_size_;
        open_size_ = image_size_;
        continue;
      }
      if (!dim.has_dim_value() || dim.dim_value() < 1 || dim.dim_value() > kMaxDimension) {
        fail(fmt::format(
            "{}: dimension {} of {} is {}; expected a number of 1 to {}: export the network with such an input", where,
            axes[i], is_channels_last_ ? "[N, H, W, C]" : "[N, C, H, W]",
            dim.has_dim_value() ? std::to_string(dim.dim_value()) : "'" + shown_name(dim.dim_param()) + "'",
            kMaxDimension));
      }
      sizes[i] = static_cast<int>(dim.dim_value());
    }
    if (image_size_ > 0 && open_size_ == 0 && (sizes[1] != image_size_ || sizes[2] != image_size_)) {
      if (sizes[1] != sizes[2] || network_.marks != nullptr)
        throw usage_error(fmt::format(
            "{}: {}: takes images of {}x{} (height, width) and no other size: leave --image-size out, give a recipe's "
            "data.image_size this size, or export the network with open height and width",
            file_.name, where, sizes[1], sizes[2]));
      own_size_ = sizes[1];
      sizes[1] = sizes[2] = open_size_ = image_size_;
      network_.note(fmt::format("{}: images of {}x{} in the file, of {}x{} in octet's network", where, own_size_,
                                own_size_, image_size_, image_size_));
    }
    if (type.shape().dim(0).has_dim_value()) network_.batch = type.shape().dim(0).dim_value();
    Node node{.op = Op::input, .shape = {sizes[0], sizes[1], sizes[2]}};
    OnnxValue value = guarded(where + ": ", [&] { return network_.append(std::move(node), {input->name(), "input"}); });
    value.direct = false;
    value.rank = rank;
    value.channels_last = is_channels_last_;
    if (is_channels_last_ || rank != 4)
      network_.note(fmt::format("{}: {} in the file; octet's network, and what it exports, take [N, {}, {}, {}]", where,
                                is_channels_last_ ? "[N, H, W, C]"
                                : rank == 3       ? "[N, C, W]"
                                                  : "[N, C]",
                                sizes[0], sizes[1], sizes[2]));
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
      const NearestValues nearest = cut_ ? NearestValues{} : where_to_end(n + 1);
      if (nearest.names.empty()) add_cure(error, n);
      OnnxEndsTooLate late(Error(error.code(), error.what() + advice_to_end(network_, nearest, open_size_)),
                           nearest.names);
      late.left_out = nearest.left_out;
      throw late;
    }
  }

  /// Throws the error of node n with what can be done about it, where that is not in its message.
  [[noreturn]] void add_cure(const Error& error, int n) {
    const auto* refusal = dynamic_cast<const OnnxRefusal*>(&error);
    if (refusal == nullptr) throw error;
    const bool begins_late = n < graph_.node_size() && prepares_images(network_, graph_.node(n));
    throw Error(error.code(),
                error.what() + (begins_late ? advice_to_begin(network_, graph_.node(n), outputs_) : refusal->cure));
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

  void take(const NodeProto& proto) {
    NodeReader node(proto, network_);
    if (proto.output_size() == 0 || proto.output(0).empty()) node.fail("has no first output");
    const auto rule = rules().find(proto.op_type());
    const bool own = proto.domain().empty() || proto.domain() == "ai.onnx";
    if (!own)
      node.refuse(fmt::format("an operator of '{}'; octet imports ONNX's own", shown_name(proto.domain())),
                  file_.model->functions_size() > 0
                      ? "; onnx.inliner.inline_local_functions replaces functions of the file by them"
                      : "");
    if (rule == rules().end()) {
      if (proto.op_type().ends_with("Normalization") || proto.op_type() == "LRN") node.fail(kNoNormalization);
      std::vector<std::string_view> names;
      for (const auto& [name, function] : rules()) names.push_back(name);
      node.refuse(fmt::format("octet has no such operator; it imports {}", fmt::join(names, ", ")));
    }
    try {
      rule->second(node);
      node.done();
    } catch (const Error& error) {
      const std::string what = error.what();
      if (what.starts_with(file_.name + ": ")) throw;
      node.refuse(what);  // of the Graph, which has no such shape
    }
  }

  OnnxValue take_output(const std::string& name) {
    const std::string where = fmt::format("output '{}'", shown_name(name));
    const auto found = network_.values.find(name);
    if (found == network_.values.end()) fail(where + ": no node gives it: export the network again");
    OnnxValue& value = found->second;
    const bool image = value.node >= 0 && value.heads == 0 && value.groups == 0 && network_.marks == nullptr;
    if (image && !value.plain() && !value.erf)
      value = guarded(where + ": ", [&] {
        return onnx_rules::with_numbers_applied(network_, value, {name, name + "/scale"});
      });
    if (const std::string fault = output_fault(found->second); !fault.empty())
      fail(fmt::format(
          "{}: {}; end the network at a layer, {}", where, fault,
          network_.marks != nullptr ? "by onnx.utils.extract_model" : "by model.outputs in a recipe, or --outputs"));
    if (found->second.channels_last)
      network_.note(fmt::format("{}: [N, H, W, C] in the file, [N, C, H, W] of octet's network", where));
    return found->second;
  }

  OnnxFile& file_;
  const GraphProto& graph_;
  Network network_;
  std::vector<std::string> outputs_;
  bool cut_ = false;  ///< the outputs are not the file's own
  const int image_size_;
  int open_size_ = 0;              ///< image_size_ if it stands for the height or width
  int own_size_ = 0;               ///< what the file gives for both, where image_size_ is taken in its place
  bool is_channels_last_ = false;  ///< the file takes images [N, H, W, C]
  std::vector<bool> live_;
};

/// Whether the file is imported for images of the size that it gives.
bool imports_as_it_is(OnnxFile& file, const std::vector<std::string>& outputs, QdqMarks* marks) try {
  Importer(file, outputs, marks, 0).run();
  return true;
} catch (const Error&) {
  return false;
}

}  // namespace

bool has_onnx() { return true; }

ImportedNetwork import_file(OnnxFile& file, const std::vector<std::string>& outputs, QdqMarks* marks, int image_size) {
  Importer importer(file, outputs, marks, image_size);
  try {
    return importer.run();
  } catch (const Error& error) {
    const int own = importer.own_size();
    if (own == 0 || !imports_as_it_is(file, outputs, marks)) throw;
    throw Error(error.code(),
                fmt::format("{}; the file is for images of {}x{}, which octet imports, and was tried with {}x{}: leave "
                            "--image-size out, or give a recipe's data.image_size the file's size",
                            error.what(), own, own, image_size, image_size));
  }
}

OnnxFile open_onnx_file(const std::string& path, bool as_written) {
  const std::string bytes = read_file(path);
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  return open_onnx(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), path, folder, as_written);
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

}  // namespace octet
