#include "src/graph/checkpoint.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "src/common/error.h"
#include "src/common/files.h"
#include "src/common/saturating_product.h"
#include "src/graph/checkpoint_json.h"
#include "src/graph/op_traits.h"
#include "src/graph/packed_codes.h"
#include "src/tensor_files/file_kind.h"
#include "src/tensor_files/safetensors.h"

namespace octet {
namespace {

constexpr const char* kDocument = "octet";

std::vector<int64_t> weight_shape(const Int8Graph& graph, const Int8Node& node) {
  const Shape& in = graph.nodes[static_cast<size_t>(node.inputs.front())].shape;
  if (node.op == Int8Op::linear) return {node.shape.c, in.c};
  return {node.shape.c, node.window.kernel_h, node.window.kernel_w, in.c / node.groups};
}

template <typename T>
TensorData to_tensor(DType dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  TensorData tensor{dtype, std::move(shape), std::vector<std::byte>(values.size() * sizeof(T))};
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

bool packed(const Int8Node& node) { return node.weight_bits < 8; }

TensorData weight_tensor(const Int8Graph& graph, const Int8Node& node) {
  if (!packed(node)) return to_tensor(DType::i8, weight_shape(graph, node), node.weight);
  const std::vector<uint8_t> bytes = pack_codes(node.weight, node.weight_bits);
  return to_tensor(DType::u8, {static_cast<int64_t>(bytes.size())}, bytes);
}

/// Of a node that nothing has checked yet: all codes that the bytes can hold, without those that only fill the last
/// byte. validate() says what does not fit.
std::vector<int8_t> unpacked(const Int8Graph& graph, const Int8Node& node, const std::vector<uint8_t>& bytes) {
  if (node.weight_bits < 2) throw data_error(fmt::format("'{}': weight_bits {}", node.name, node.weight_bits));
  const size_t room = bytes.size() * 8 / static_cast<size_t>(node.weight_bits);
  size_t count = room;
  const bool readable = !node.inputs.empty() && node.inputs[0] >= 0 &&
                        node.inputs[0] < static_cast<int>(graph.nodes.size()) && node.groups > 0;
  if (readable) {
    const auto wanted = static_cast<size_t>(saturating_product(weight_shape(graph, node)));
    if (wanted <= room && packed_bytes(wanted, node.weight_bits) == bytes.size()) count = wanted;
  }
  try {
    return unpack_codes(bytes, count, node.weight_bits);
  } catch (const Error& error) {
    throw data_error(fmt::format("tensor '{}.weight': {}", node.name, error.what()));
  }
}

/// Takes tensors out of the file, so that what is left over is what nobody knows.
class TensorTaker {
 public:
  explicit TensorTaker(TensorFile& file) : file_(file) {}

  std::vector<float> floats(const std::string& key) { return take<float>(key, DType::f32); }
  std::vector<int32_t> integers(const std::string& key) { return take<int32_t>(key, DType::i32); }
  std::vector<int8_t> codes(const std::string& key) { return take<int8_t>(key, DType::i8); }
  std::vector<uint8_t> bytes(const std::string& key, DType dtype) { return take<uint8_t>(key, dtype); }

  void done() const {
    if (file_.tensors.empty()) return;
    throw data_error(fmt::format("tensor '{}' belongs to no node", file_.tensors.begin()->first));
  }

 private:
  template <typename T>
  std::vector<T> take(const std::string& key, DType dtype) {
    const auto node = file_.tensors.extract(key);
    if (node.empty()) throw data_error(fmt::format("tensor '{}' is missing", key));
    const TensorData& tensor = node.mapped();
    if (tensor.dtype != dtype) {
      throw data_error(fmt::format("tensor '{}' is {}, must be {}", key, dtype_name(tensor.dtype), dtype_name(dtype)));
    }
    std::vector<T> values(tensor.bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }

  TensorFile& file_;
};

/// Of the codes that a node writes.
DType code_dtype(const Int8Node& node) { return node.out.is_signed() ? DType::i8 : DType::u8; }

bool scaled(Int8Op op) { return traits(op).multipliers != Multipliers::none; }

/// Sizes are checked by validate(); this holds the tensors' shapes against the nodes.
void check_tensor_shapes(const Int8Graph& graph, const std::map<std::string, std::vector<int64_t>>& shapes) {
  const auto check = [&](const std::string& key, const std::vector<int64_t>& expected) {
    const std::vector<int64_t>& shape = shapes.at(key);
    if (shape != expected) {
      throw data_error(fmt::format("tensor '{}' has shape [{}], must have [{}]", key, fmt::join(shape, ", "),
                                   fmt::join(expected, ", ")));
    }
  };
  for (const Int8Node& node : graph.nodes) {
    if (scaled(node.op)) check(node.name + ".multiplier", {static_cast<int64_t>(node.multiplier.size())});
    if (node.op == Int8Op::lookup) check(node.name + ".table", {static_cast<int64_t>(node.table.size())});
    if (node.op == Int8Op::softmax)
      check(node.name + ".exponentials", {static_cast<int64_t>(node.exponentials.size())});
    if (!has_weight(node.op)) continue;
    const auto bytes = static_cast<int64_t>(packed_bytes(node.weight.size(), node.weight_bits));
    check(node.name + ".weight", packed(node) ? std::vector<int64_t>{bytes} : weight_shape(graph, node));
    check(node.name + ".bias", {node.shape.c});
    check(node.name + ".weight_scale", {node.shape.c});
  }
}

/// The graph of a checkpoint's document and tensors, which it takes out of `file`.
Int8Graph assemble(TensorFile& file, std::string_view document) {
  Int8Graph graph = read_checkpoint_json(document, "octet");
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [key, tensor] : file.tensors) shapes[key] = tensor.shape;
  TensorTaker taker(file);
  for (Int8Node& node : graph.nodes) {
    if (scaled(node.op)) node.multiplier = taker.floats(node.name + ".multiplier");
    if (node.op == Int8Op::lookup) node.table = taker.bytes(node.name + ".table", code_dtype(node));
    if (node.op == Int8Op::softmax) node.exponentials = taker.integers(node.name + ".exponentials");
    if (!has_weight(node.op)) continue;
    const std::string weight = node.name + ".weight";
    node.weight = packed(node) ? unpacked(graph, node, taker.bytes(weight, DType::u8)) : taker.codes(weight);
    node.bias = taker.floats(node.name + ".bias");
    node.weight_scale = taker.floats(node.name + ".weight_scale");
  }
  taker.done();
  validate(graph);
  check_tensor_shapes(graph, shapes);
  return graph;
}

}  // namespace

std::string serialize_checkpoint(const Int8Graph& graph) {
  validate(graph);
  TensorFile file;
  file.metadata[kDocument] = write_checkpoint_json(graph);
  for (const Int8Node& node : graph.nodes) {
    const int64_t multipliers = static_cast<int64_t>(node.multiplier.size()), channels = node.shape.c;
    if (scaled(node.op)) {
      file.tensors[node.name + ".multiplier"] = to_tensor(DType::f32, {multipliers}, node.multiplier);
    }
    if (node.op == Int8Op::lookup) file.tensors[node.name + ".table"] = to_tensor(code_dtype(node), {256}, node.table);
    if (node.op == Int8Op::softmax)
      file.tensors[node.name + ".exponentials"] = to_tensor(DType::i32, {256}, node.exponentials);
    if (!has_weight(node.op)) continue;
    file.tensors[node.name + ".weight"] = weight_tensor(graph, node);
    file.tensors[node.name + ".bias"] = to_tensor(DType::f32, {channels}, node.bias);
    file.tensors[node.name + ".weight_scale"] = to_tensor(DType::f32, {channels}, node.weight_scale);
  }
  return serialize_safetensors(file);
}

void write_checkpoint(const std::string& path, const Int8Graph& graph) {
  write_file_atomically(path, serialize_checkpoint(graph));
}

Int8Graph parse_checkpoint(const std::byte* data, size_t size, const std::string& name) {
  if (is_onnx(data, size) && !is_safetensors(data, size)) {
    throw data_error(
        fmt::format("{}: an ONNX file; the runner reads int8 checkpoints. An octet with ONNX makes one: of a quantized "
                    "network octet export FILE.onnx --out int8.safetensors, of a float one octet train with model.onnx",
                    name));
  }
  TensorFile file = parse_safetensors(data, size, name);
  const auto document = file.metadata.find(kDocument);
  if (document == file.metadata.end()) {
    throw data_error(fmt::format(
        "{}: a safetensors file, but no octet checkpoint (no '{}' in its metadata); a recipe takes float weights "
        "as model.weights",
        name, kDocument));
  }
  try {
    return assemble(file, document->second);
  } catch (const Error& error) {
    throw data_error(fmt::format("{}: {}", name, error.what()));
  }
}

Int8Graph read_checkpoint(const std::string& path) {
  const std::string contents = read_file(path);
  return parse_checkpoint(reinterpret_cast<const std::byte*>(contents.data()), contents.size(), path);
}

}  // namespace octet
