// SPDX-License-Identifier: Apache-2.0
#include "src/net/checkpoint.h"

#include <fmt/format.h>

#include <cstring>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/numbers.h"
#include "src/net/op_traits.h"

namespace octet {

int code_bits(const std::vector<int8_t>& codes) {
  int bits = 2;
  for (const int code : codes) {
    while (code < -(1 << (bits - 1)) || code >= 1 << (bits - 1)) ++bits;
  }
  return bits;
}

size_t packed_bytes(size_t count, int bits) { return (count * static_cast<size_t>(bits) + 7) / 8; }

std::vector<uint8_t> pack_codes(const std::vector<int8_t>& codes, int bits) {
  std::vector<uint8_t> bytes;
  bytes.reserve(packed_bytes(codes.size(), bits));
  unsigned waiting = 0;
  int held = 0;  // bits in `waiting`
  for (const int8_t code : codes) {
    waiting |= (static_cast<unsigned>(code) & ((1u << bits) - 1)) << held;
    for (held += bits; held >= 8; held -= 8, waiting >>= 8) bytes.push_back(static_cast<uint8_t>(waiting));
  }
  if (held > 0) bytes.push_back(static_cast<uint8_t>(waiting));
  return bytes;
}

std::vector<int8_t> unpack_codes(const std::vector<uint8_t>& bytes, size_t count, int bits) {
  if (bytes.size() != packed_bytes(count, bits)) {
    throw data_error(
        fmt::format("{} codes of {} bits take {} bytes, not {}", count, bits, packed_bytes(count, bits), bytes.size()));
  }
  std::vector<int8_t> codes;
  codes.reserve(count);
  unsigned waiting = 0;
  int held = 0;  // bits in `waiting`
  for (const uint8_t byte : bytes) {
    waiting |= static_cast<unsigned>(byte) << held;
    for (held += 8; held >= bits && codes.size() < count; held -= bits, waiting >>= bits) {
      const int code = static_cast<int>(waiting & ((1u << bits) - 1)), sign = 1 << (bits - 1);
      codes.push_back(static_cast<int8_t>((code ^ sign) - sign));
    }
  }
  if (waiting != 0) throw data_error("bits behind the last code");
  return codes;
}

namespace {

constexpr const char *kDocument = "octet", *kNames = "names", *kOfFile = "file";

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

/// Unpacks the weights of a node that is not checked yet: as many codes as its shapes say, if the bytes are that many,
/// else all that the bytes can hold, which validate() then refuses.
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

/// Returns the type of the codes that a node gives.
DType code_dtype(const Int8Node& node) { return node.out.is_signed() ? DType::i8 : DType::u8; }

/// Whether a lookup has a table for each channel.
bool has_channel_tables(const Int8Node& node) { return node.op == Int8Op::lookup && node.groups > 1; }

/// Calls visit(suffix, dtype, values) for each vector of a node that is the tensor "<node>.<suffix>" of a file, and
/// weight() where the weights come, which may be packed.
template <typename AnyNode, typename Visit, typename Weight>
void for_tensors(AnyNode& node, const Visit& visit, const Weight& weight) {
  if (traits(node.op).multipliers != Multipliers::none || has_channel_tables(node))
    visit("multiplier", DType::f32, node.multiplier);
  if (node.op == Int8Op::lookup) visit("table", code_dtype(node), node.table);
  if (node.op == Int8Op::softmax) visit("exponentials", DType::i32, node.exponentials);
  if (!has_weight(node.op)) return;
  weight();
  visit("bias", DType::f32, node.bias);
  visit("weight_scale", DType::f32, node.weight_scale);
}

std::string tensor_name(const Int8Node& node, const char* suffix) { return fmt::format("{}.{}", node.name, suffix); }

/// Takes a tensor out of the file, so that assemble() can refuse those that belong to no node.
template <typename T>
void take(TensorFile& file, const std::string& key, DType dtype, std::vector<T>& values) {
  const auto node = file.tensors.extract(key);
  if (node.empty()) throw data_error(fmt::format("tensor '{}' is missing", key));
  const TensorData& tensor = node.mapped();
  if (tensor.dtype != dtype) {
    throw data_error(fmt::format("tensor '{}' is {}, must be {}", key, dtype_name(tensor.dtype), dtype_name(dtype)));
  }
  values.resize(tensor.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
}

void take_weight(TensorFile& file, const Int8Graph& graph, Int8Node& node) {
  const std::string key = tensor_name(node, "weight");
  if (!packed(node)) return take(file, key, DType::i8, node.weight);
  std::vector<uint8_t> bytes;
  take(file, key, DType::u8, bytes);
  node.weight = unpacked(graph, node, bytes);
}

/// Checks the shapes of the tensors. validate() has checked their sizes.
void check_tensor_shapes(const Int8Graph& graph, const std::map<std::string, std::vector<int64_t>>& shapes) {
  const auto check = [&](const std::string& key, const std::vector<int64_t>& expected) {
    const std::vector<int64_t>& shape = shapes.at(key);
    if (shape != expected) {
      throw data_error(fmt::format("tensor '{}' has shape [{}], must have [{}]", key, fmt::join(shape, ", "),
                                   fmt::join(expected, ", ")));
    }
  };
  for (const Int8Node& node : graph.nodes) {
    const auto vector = [&](const char* suffix, DType, const auto& values) {
      check(tensor_name(node, suffix), {static_cast<int64_t>(values.size())});
    };
    const auto weight = [&] {
      const auto bytes = static_cast<int64_t>(packed_bytes(node.weight.size(), node.weight_bits));
      check(tensor_name(node, "weight"), packed(node) ? std::vector<int64_t>{bytes} : weight_shape(graph, node));
    };
    for_tensors(node, vector, weight);
  }
}

/// Makes the graph of a checkpoint's document and tensors, which it takes out of `file`.
Int8Graph assemble(TensorFile& file, std::string_view document) {
  Int8Graph graph = read_checkpoint_json(document, "octet");
  const auto names = file.metadata.find(kNames);
  graph.own_names = graph.recipe_hash.empty() || (names != file.metadata.end() && names->second == kOfFile);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [key, tensor] : file.tensors) shapes[key] = tensor.shape;
  for (Int8Node& node : graph.nodes) {
    const auto vector = [&](const char* suffix, DType dtype, auto& values) {
      take(file, tensor_name(node, suffix), dtype, values);
    };
    for_tensors(node, vector, [&] { take_weight(file, graph, node); });
  }
  if (!file.tensors.empty())
    throw data_error(fmt::format("tensor '{}' belongs to no node", file.tensors.begin()->first));
  validate(graph);
  check_tensor_shapes(graph, shapes);
  return graph;
}

}  // namespace

std::string serialize_checkpoint(const Int8Graph& graph) {
  validate(graph);
  TensorFile file;
  file.metadata[kDocument] = write_checkpoint_json(graph);
  if (graph.own_names && !graph.recipe_hash.empty()) file.metadata[kNames] = kOfFile;
  for (const Int8Node& node : graph.nodes) {
    const auto vector = [&](const char* suffix, DType dtype, const auto& values) {
      file.tensors[tensor_name(node, suffix)] = to_tensor(dtype, {static_cast<int64_t>(values.size())}, values);
    };
    for_tensors(node, vector, [&] { file.tensors[tensor_name(node, "weight")] = weight_tensor(graph, node); });
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

namespace {

constexpr const char* kImages = "images";

TensorData empty_tensor(const Shape& shape, DType dtype) { return {dtype, {0, shape.h, shape.w, shape.c}, {}}; }

}  // namespace

CodeDump::CodeDump(const Int8Graph& graph) {
  file_.tensors[kImages] = empty_tensor(graph.input_shape(), DType::u8);
  for (const Int8Node& node : graph.nodes) {
    keys_.push_back((node.float_output ? "values/" : "codes/") + node.name);
    file_.tensors[keys_.back()] = empty_tensor(node.shape, node.float_output ? DType::f32 : code_dtype(node));
  }
}

void CodeDump::append(const std::string& key, const void* data, size_t bytes) {
  std::vector<std::byte>& all = file_.tensors.at(key).bytes;
  const auto* begin = static_cast<const std::byte*>(data);
  all.insert(all.end(), begin, begin + bytes);
}

void CodeDump::add_images(const uint8_t* pixels, int batch) {
  const TensorData& images = file_.tensors.at(kImages);
  append(kImages, pixels, static_cast<size_t>(batch * images.shape[1] * images.shape[2] * images.shape[3]));
  images_ += batch;
}

void CodeDump::add(int node, const void* data, size_t bytes) {
  append(keys_.at(static_cast<size_t>(node)), data, bytes);
}

void CodeDump::write(const std::string& path) const {
  TensorFile file = file_;
  for (auto& [key, tensor] : file.tensors) tensor.shape[0] = images_;
  write_safetensors(path, file);
}

}  // namespace octet
