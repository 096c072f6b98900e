// SPDX-License-Identifier: Apache-2.0
#include "src/net/onnx/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <new>
#include <system_error>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/numbers.h"
#include "src/base/safetensors.h"

namespace octet {
namespace {

constexpr size_t kMaxGrowth = 32, kAlwaysAllowed = size_t{1} << 20;

thread_local size_t memory_left = 0;  // for the file that this thread parses

struct OutOfBudget {};

void* allocate_block(size_t size) {
  if (size > memory_left) throw OutOfBudget{};
  memory_left -= size;
  return ::operator new(size);
}

void free_block(void* block, size_t) { ::operator delete(block); }

[[noreturn]] void fail(const OnnxFile& file, const std::string& what) {
  throw data_error(fmt::format("{}: {}", file.name, what));
}

int opset_of(const OnnxFile& file) {
  int opset = 0;
  for (const onnx::OperatorSetIdProto& set : file.model->opset_import()) {
    if (!set.domain().empty() && set.domain() != "ai.onnx") continue;
    if (opset != 0) fail(file, "names ONNX's operator set twice: export the network again");
    if (set.version() < kOldestOpset || set.version() > kNewestOpset) {
      fail(file, fmt::format("opset {}; octet reads {} to {}: export the network again, torch.onnx.export(..., "
                             "opset_version=17)",
                             set.version(), kOldestOpset, kNewestOpset));
    }
    opset = static_cast<int>(set.version());
  }
  if (opset == 0) fail(file, "does not say its opset: not an ONNX model; expected what torch.onnx.export writes");
  return opset;
}

}  // namespace

OnnxFile open_onnx(const std::byte* data, size_t size, const std::string& name, const std::string& folder,
                   bool as_written) {
  OnnxFile file{.name = name, .folder = folder, .size = size};
  if (is_safetensors(data, size))
    fail(file, "a safetensors file, not an ONNX model; octet takes it under a name that ends in .safetensors");
  if (size > static_cast<size_t>(std::numeric_limits<int>::max()))
    fail(file, "larger than 2 GB, which no ONNX file is; keep weights in external data");
  memory_left = kMaxGrowth * size + kAlwaysAllowed;
  google::protobuf::ArenaOptions options;
  options.block_alloc = allocate_block;
  options.block_dealloc = free_block;
  file.memory = std::make_unique<google::protobuf::Arena>(options);
  const auto fail_large = [&] {
    fail(file,
         fmt::format("would take more than {} times its size in memory: not an ONNX model; fetch or export it again",
                     kMaxGrowth));
  };
  auto* model = google::protobuf::Arena::CreateMessage<onnx::ModelProto>(file.memory.get());
  file.model = model;
  try {
    if (!model->ParseFromArray(data, static_cast<int>(size)))
      fail(file, "damaged, or not an ONNX model: fetch or export it again");
  } catch (const OutOfBudget&) {
    fail_large();
  }
  if (!file.model->has_graph()) fail(file, "has no graph: not an ONNX model; fetch or export it again");
  file.opset = opset_of(file);
  if (file.model->graph().sparse_initializer_size() > 0)
    fail(file, "holds sparse weights; octet reads dense float32 weights: export the network with those");
  sort_nodes(name, *model->mutable_graph());
  try {
    if (!as_written) expand_qoperators(*model->mutable_graph(), name);
  } catch (const OutOfBudget&) {
    fail_large();
  }
  return file;
}

namespace {

using onnx::TensorProto;
namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw data_error(fmt::format("{}: {}", where, what));
}

size_t element_size(int type, const std::string& where) {
  switch (type) {
    case TensorProto::FLOAT:
    case TensorProto::INT32:
      return 4;
    case TensorProto::INT64:
    case TensorProto::DOUBLE:
      return 8;
    case TensorProto::FLOAT16:
    case TensorProto::BFLOAT16:
      return 2;
    case TensorProto::BOOL:
    case TensorProto::INT8:
    case TensorProto::UINT8:
      return 1;
    default:
      fail(where,
           fmt::format("is of type {}; expected float32, float16, bfloat16 or float64 weights, int8 or uint8 codes, "
                       "or int64, int32 and bool in shape arithmetic: export the network with these",
                       type_name(type)));
  }
}

uint64_t unsigned_number(const std::string& text, const std::string& where, const char* key) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(where, fmt::format("external data: {} '{}' is not a number; fetch or export the file again", key, text));
  return value;
}

/// Returns the path of external data, which must be in the model's folder also after links are followed.
fs::path external_path(const OnnxFile& file, const std::string& location, const std::string& where) {
  if (file.folder.empty())
    fail(where,
         "lies in external data, and there is no folder to read it from: onnx.save(onnx.load(FILE), NEW) puts all into "
         "one file");
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(file.folder, error);
  const fs::path path = fs::weakly_canonical(folder / location, error);
  const fs::path inside = path.lexically_relative(folder);
  if (error || location.empty() || location.find('\0') != std::string::npos || inside.empty() || inside == "." ||
      *inside.begin() == "..")
    fail(where,
         fmt::format("external data '{}' does not lie in the model's folder: move it there, and save the model again",
                     location));
  if (!fs::is_regular_file(path, error))
    fail(where,
         fmt::format("external data '{}': no such file; fetch it too, the model's weights are in it", path.string()));
  return path;
}

std::string external_bytes(OnnxFile& file, const TensorProto& tensor, size_t size, const std::string& where) {
  std::string location;
  uint64_t offset = 0, length = size;
  for (const onnx::StringStringEntryProto& entry : tensor.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = unsigned_number(entry.value(), where, "offset");
    if (entry.key() == "length") length = unsigned_number(entry.value(), where, "length");
  }
  const fs::path path = external_path(file, location, where);
  std::error_code error;
  const uint64_t there = fs::file_size(path, error);
  if (error || length != size || offset > there || size > there - offset) {
    fail(where, fmt::format("needs {} bytes at offset {} of '{}' ({} named), which has {}: fetch or export both again",
                            size, offset, path.string(), length, there));
  }
  file.external[path.string()] = there;
  std::string bytes(size, '\0');
  std::ifstream in(path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(offset));
  if (!in.read(bytes.data(), static_cast<std::streamsize>(size)))
    fail(where, fmt::format("external data '{}' cannot be read; fetch it again", path.string()));
  return bytes;
}

template <typename T, typename Out>
void unpack(const std::string& bytes, std::vector<Out>& out) {
  out.resize(bytes.size() / sizeof(T));
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<Out>(value);
  }
}

/// Converts float16 or bfloat16 to float32, which is exact.
std::vector<float> widened(const std::string& bytes, int type) {
  TensorData half{.dtype = type == TensorProto::FLOAT16 ? DType::f16 : DType::bf16};
  const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
  half.bytes.assign(first, first + bytes.size());
  return to_float(half);
}

/// Rounds float64 to the nearest float32, and counts the values that float32 cannot hold to its precision.
void narrow(const std::vector<double>& values, Constant& constant) {
  using Float = std::numeric_limits<float>;
  constant.reals.reserve(values.size());
  for (const double value : values) {
    const auto rounded = static_cast<float>(value);
    constant.reals.push_back(rounded);
    constant.too_large += std::isfinite(value) && !std::isfinite(rounded);
    constant.too_small += rounded != value && std::abs(rounded) < Float::min();
  }
}

/// Takes the numbers of a tensor without raw bytes from the field for its type.
void take_fields(const TensorProto& tensor, Constant& constant) {
  switch (tensor.data_type()) {
    case TensorProto::FLOAT:
      constant.reals.assign(tensor.float_data().begin(), tensor.float_data().end());
      return;
    case TensorProto::INT64:
      constant.integers.assign(tensor.int64_data().begin(), tensor.int64_data().end());
      return;
    case TensorProto::DOUBLE:
      narrow({tensor.double_data().begin(), tensor.double_data().end()}, constant);
      return;
    case TensorProto::FLOAT16:
    case TensorProto::BFLOAT16: {  // each int32 holds the bits of a number
      std::string bytes;
      for (const int32_t bits : tensor.int32_data()) {
        const auto half = static_cast<uint16_t>(bits);
        bytes.append(reinterpret_cast<const char*>(&half), sizeof(half));
      }
      constant.reals = widened(bytes, tensor.data_type());
      return;
    }
    default:  // int32, int8, uint8 and bool
      constant.integers.assign(tensor.int32_data().begin(), tensor.int32_data().end());
  }
}

void take_bytes(const std::string& bytes, int type, Constant& constant) {
  if (type == TensorProto::FLOAT) unpack<float>(bytes, constant.reals);
  if (type == TensorProto::FLOAT16 || type == TensorProto::BFLOAT16) constant.reals = widened(bytes, type);
  if (type == TensorProto::DOUBLE) {
    std::vector<double> values;
    unpack<double>(bytes, values);
    narrow(values, constant);
  }
  if (type == TensorProto::INT64) unpack<int64_t>(bytes, constant.integers);
  if (type == TensorProto::INT32) unpack<int32_t>(bytes, constant.integers);
  if (type == TensorProto::INT8) unpack<int8_t>(bytes, constant.integers);
  if (type == TensorProto::BOOL || type == TensorProto::UINT8) unpack<uint8_t>(bytes, constant.integers);
}

}  // namespace

std::string type_name(int64_t type) {
  // Types that are newer than the schema, which is that of Debian 12's ONNX.
  constexpr int64_t kFirstNew = 17;
  constexpr const char* kNew[] = {"FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ",
                                  "UINT4",        "INT4",           "FLOAT4E2M1", "FLOAT8E8M0"};
  if (type >= kFirstNew && type < kFirstNew + static_cast<int64_t>(std::size(kNew))) return kNew[type - kFirstNew];
  const bool known = type >= 0 && type < kFirstNew && TensorProto::DataType_IsValid(static_cast<int>(type));
  return known ? TensorProto::DataType_Name(static_cast<TensorProto::DataType>(type)) : fmt::format("number {}", type);
}

bool is_real_type(int type) {
  return type == TensorProto::FLOAT || type == TensorProto::FLOAT16 || type == TensorProto::BFLOAT16 ||
         type == TensorProto::DOUBLE;
}

Constant read_constant(OnnxFile& file, const TensorProto& tensor, const std::string& where) {
  const size_t element = element_size(tensor.data_type(), where);
  Constant constant;
  constant.type = tensor.data_type();
  constant.real = is_real_type(constant.type);
  constant.shape.assign(tensor.dims().begin(), tensor.dims().end());
  int64_t bytes = static_cast<int64_t>(element);
  for (const int64_t dim : constant.shape) {
    if (dim < 0) fail(where, fmt::format("has shape {}: export the network again", dims_text(constant.shape)));
    bytes = saturating_product({bytes, dim});
  }
  const size_t count = static_cast<size_t>(bytes) / element;
  if (tensor.data_location() == TensorProto::EXTERNAL) {
    take_bytes(external_bytes(file, tensor, static_cast<size_t>(bytes), where), tensor.data_type(), constant);
  } else if (tensor.has_raw_data()) {
    if (tensor.raw_data().size() != static_cast<size_t>(bytes)) {
      fail(where, fmt::format("has {} bytes, its shape {} needs {}: export the network again", tensor.raw_data().size(),
                              dims_text(constant.shape), bytes));
    }
    take_bytes(tensor.raw_data(), tensor.data_type(), constant);
  } else {
    take_fields(tensor, constant);
  }
  if (constant.elements() != count) {
    fail(where, fmt::format("has {} numbers, its shape {} needs {}: export the network again", constant.elements(),
                            dims_text(constant.shape), count));
  }
  return constant;
}

std::string dims_text(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i)
    text += (i ? ", " : "") + (dims[i] == kBatchSize ? "N" : std::to_string(dims[i]));
  return text + "]";
}

std::string shown_name(const std::string& name) {
  constexpr size_t kLongestShown = 80;
  std::string shown = name.substr(0, kLongestShown);
  for (char& c : shown)
    if (c < ' ' || c > '~') c = '?';
  return shown + (name.size() > kLongestShown ? "..." : "");
}

bool is_turned(const onnx::GraphProto& graph, std::string name) {
  constexpr int kMostBefore = 8;
  for (int step = 0; step <= kMostBefore; ++step) {
    const auto reads = [&](const onnx::NodeProto& node) {
      return node.output_size() > 0 && std::find(node.input().begin(), node.input().end(), name) != node.input().end();
    };
    const auto reader = std::find_if(graph.node().begin(), graph.node().end(), reads);
    if (reader == graph.node().end()) return false;
    if (reader->op_type() == "Transpose")
      return std::any_of(reader->attribute().begin(), reader->attribute().end(), [](const auto& perm) {
        constexpr std::array<int64_t, 4> kToFirst = {0, 3, 1, 2};
        return std::equal(perm.ints().begin(), perm.ints().end(), kToFirst.begin(), kToFirst.end());
      });
    name = reader->output(0);
  }
  return false;
}

}  // namespace octet
