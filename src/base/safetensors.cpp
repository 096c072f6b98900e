// SPDX-License-Identifier: Apache-2.0
#include "src/base/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/json.h"
#include "src/base/numbers.h"

namespace octet {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kAlignment = 64;
constexpr size_t kMaxDimensions = 16;
constexpr std::string_view kMetadata = "__metadata__";

/// Returns the bytes of a tensor, INT64_MAX if that overflows.
int64_t byte_count(DType dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = static_cast<int64_t>(dtype_size(dtype));
  for (const int64_t dimension : shape) bytes = saturating_product({bytes, dimension});
  return bytes;
}

/// The bytes [begin, end) of a tensor in the data.
struct Extent {
  uint64_t begin, end;
  std::string name;
  bool operator<(const Extent& other) const { return std::tie(begin, end) < std::tie(other.begin, other.end); }
};

std::vector<int64_t> unsigned_numbers(JsonObject& object, const std::string& key) {
  std::vector<int64_t> numbers;
  for (const nlohmann::json& element : object.array(key)) {
    if (!element.is_number_unsigned() || element.get<uint64_t>() > uint64_t{1} << 62) {
      throw data_error(fmt::format("{}.{} holds something that is no size", object.where(), key));
    }
    numbers.push_back(element.get<int64_t>());
  }
  return numbers;
}

struct Parser {
  const std::byte* data;  ///< begins after the header
  size_t data_size;
  const std::string& name;
  TensorFile file = {};
  std::vector<Extent> extents = {};

  void metadata(const nlohmann::json& json) {
    if (!json.is_object()) throw data_error(fmt::format("{}: {} is not an object", name, kMetadata));
    for (const auto& [key, value] : json.items()) {
      if (!value.is_string()) throw data_error(fmt::format("{}: {}.{} is not a string", name, kMetadata, key));
      file.metadata[key] = value.get<std::string>();
    }
  }

  void tensor(const std::string& key, const nlohmann::json& json) {
    JsonObject object(json, fmt::format("{}: tensor '{}'", name, key));
    TensorData tensor;
    const std::string dtype = object.string("dtype");
    const std::optional<DType> known = dtype_from_name(dtype);
    if (!known) throw data_error(fmt::format("{}: unknown dtype '{}'", object.where(), dtype));
    tensor.dtype = *known;
    tensor.shape = unsigned_numbers(object, "shape");
    if (tensor.shape.size() > kMaxDimensions) {
      throw data_error(fmt::format("{}: more than {} dimensions", object.where(), kMaxDimensions));
    }
    const std::vector<int64_t> offsets = unsigned_numbers(object, "data_offsets");
    object.done();
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      throw data_error(fmt::format("{}: data_offsets must be [begin, end]", object.where()));
    }
    const auto begin = static_cast<uint64_t>(offsets[0]), end = static_cast<uint64_t>(offsets[1]);
    if (end > data_size) {
      throw data_error(
          fmt::format("{}: ends at byte {} of {} (is the file truncated?)", object.where(), end, data_size));
    }
    if (byte_count(tensor.dtype, tensor.shape) != static_cast<int64_t>(end - begin)) {
      throw data_error(fmt::format("{}: {} bytes do not fit {} [{}]", object.where(), end - begin, dtype,
                                   fmt::join(tensor.shape, ", ")));
    }
    extents.push_back({begin, end, key});
    file.tensors.emplace(key, std::move(tensor));
  }

  /// Copies the data after a check that no tensors overlap, so that all copies together are as large as the file.
  void copy_data() {
    std::sort(extents.begin(), extents.end());
    uint64_t position = 0;
    for (const Extent& extent : extents) {
      if (extent.begin != position) {
        throw data_error(fmt::format("{}: tensor '{}' begins at byte {}, the one before it ends at {}", name,
                                     extent.name, extent.begin, position));
      }
      position = extent.end;
    }
    if (position != data_size) {
      throw data_error(fmt::format("{}: {} bytes of data, the tensors have {}", name, data_size, position));
    }
    for (const Extent& extent : extents) {
      file.tensors[extent.name].bytes.assign(data + extent.begin, data + extent.end);
    }
  }
};

}  // namespace

TensorFile parse_safetensors(const std::byte* data, size_t size, const std::string& name) {
  if (size < kLengthBytes) throw data_error(fmt::format("{}: {} bytes are no safetensors file", name, size));
  uint64_t header_size = 0;
  std::memcpy(&header_size, data, kLengthBytes);
  if (header_size > size - kLengthBytes) {
    if (is_onnx(data, size))
      throw data_error(fmt::format("{}: an ONNX file, not safetensors; a recipe takes it as model.onnx", name));
    if (is_pytorch(data, size))
      throw data_error(
          fmt::format("{}: weights of PyTorch, not safetensors; a recipe takes them as model.weights, under a "
                      "name that ends in .pth or .th",
                      name));
    throw data_error(fmt::format("{}: a header of {} bytes in a file of {} (truncated, or no safetensors file?)", name,
                                 header_size, size));
  }
  const std::string_view header(reinterpret_cast<const char*>(data) + kLengthBytes, header_size);
  const std::string where = name + ": header";
  const nlohmann::json json = parse_json(header, where);
  if (!json.is_object()) throw data_error(where + " is not a JSON object");
  Parser parser{data + kLengthBytes + header_size, size - kLengthBytes - header_size, name};
  for (const auto& [key, value] : json.items()) {
    key == kMetadata ? parser.metadata(value) : parser.tensor(key, value);
  }
  parser.copy_data();
  return std::move(parser.file);
}

TensorFile read_safetensors(const std::string& path) {
  const std::string contents = read_file(path);
  return parse_safetensors(reinterpret_cast<const std::byte*>(contents.data()), contents.size(), path);
}

std::string serialize_safetensors(const TensorFile& file) {
  using Entry = std::pair<const std::string, TensorData>;
  std::vector<const Entry*> order;
  for (const Entry& entry : file.tensors) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return dtype_size(a->second.dtype) > dtype_size(b->second.dtype);
  });

  nlohmann::json header = nlohmann::json::object();
  if (!file.metadata.empty()) header[std::string(kMetadata)] = file.metadata;
  uint64_t position = 0;
  for (const Entry* entry : order) {
    const auto& [key, tensor] = *entry;
    if (byte_count(tensor.dtype, tensor.shape) != static_cast<int64_t>(tensor.bytes.size()) || key == kMetadata) {
      throw data_error(
          fmt::format("cannot write tensor '{}': {} bytes do not fit its shape", key, tensor.bytes.size()));
    }
    header[key] = {{"dtype", dtype_name(tensor.dtype)},
                   {"shape", tensor.shape},
                   {"data_offsets", {position, position + tensor.bytes.size()}}};
    position += tensor.bytes.size();
  }

  std::string text = write_json(header, "safetensors header");
  text.resize((kLengthBytes + text.size() + kAlignment - 1) / kAlignment * kAlignment - kLengthBytes, ' ');
  const uint64_t header_size = text.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &header_size, kLengthBytes);
  bytes.reserve(kLengthBytes + text.size() + position);
  bytes += text;
  for (const Entry* entry : order) {
    const std::vector<std::byte>& data = entry->second.bytes;
    bytes.append(reinterpret_cast<const char*>(data.data()), data.size());
  }
  return bytes;
}

void write_safetensors(const std::string& path, const TensorFile& file) {
  write_file_atomically(path, serialize_safetensors(file));
}

namespace {

static_assert(std::endian::native == std::endian::little, "tensor bytes are read and written as they lie in memory");

struct DTypeEntry {
  DType dtype;
  std::string_view name;
  size_t size;
};

constexpr std::array<DTypeEntry, 10> kDTypes = {{
    {DType::f32, "F32", 4},
    {DType::f64, "F64", 8},
    {DType::f16, "F16", 2},
    {DType::bf16, "BF16", 2},
    {DType::i64, "I64", 8},
    {DType::i32, "I32", 4},
    {DType::i16, "I16", 2},
    {DType::i8, "I8", 1},
    {DType::u8, "U8", 1},
    {DType::boolean, "BOOL", 1},
}};

const DTypeEntry& entry(DType dtype) {
  for (const DTypeEntry& candidate : kDTypes) {
    if (candidate.dtype == dtype) return candidate;
  }
  throw data_error(fmt::format("tensor type number {} does not exist", static_cast<int>(dtype)));
}

/// Converts IEEE 754 binary16, whose values are all exact in float32.
float half_to_float(uint16_t half) {
  const int exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ff;
  float magnitude = 0;
  if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else if (exponent == 0x1f) {
    magnitude = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa + 0x400), exponent - 25);
  }
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

/// Converts bfloat16, the upper half of a float32.
float bfloat_to_float(uint16_t bfloat) { return std::bit_cast<float>(static_cast<uint32_t>(bfloat) << 16); }

template <typename T, typename Convert>
std::vector<float> convert_all(const std::vector<std::byte>& bytes, Convert convert) {
  std::vector<float> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T element;
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = convert(element);
  }
  return values;
}

}  // namespace

size_t dtype_size(DType dtype) { return entry(dtype).size; }

std::string_view dtype_name(DType dtype) { return entry(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeEntry& candidate : kDTypes) {
    if (candidate.name == name) return candidate.dtype;
  }
  return std::nullopt;
}

std::vector<float> to_float(const TensorData& tensor) {
  switch (tensor.dtype) {
    case DType::f32:
      return convert_all<float>(tensor.bytes, [](float x) { return x; });
    case DType::f64:
      return convert_all<double>(tensor.bytes, [](double x) { return static_cast<float>(x); });
    case DType::f16:
      return convert_all<uint16_t>(tensor.bytes, half_to_float);
    case DType::bf16:
      return convert_all<uint16_t>(tensor.bytes, bfloat_to_float);
    default:
      throw data_error(fmt::format("a tensor of type {} where floats are needed", dtype_name(tensor.dtype)));
  }
}

std::string place_in(const std::vector<int64_t>& shape, size_t index) {
  std::vector<size_t> place(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    place[d] = index % static_cast<size_t>(shape[d]);
    index /= static_cast<size_t>(shape[d]);
  }
  return fmt::format("[{}]", fmt::join(place, ", "));
}

std::string not_finite(const std::vector<float>& values, const std::vector<int64_t>& shape) {
  const auto is_bad = [](float value) { return !std::isfinite(value); };
  const auto first = std::find_if(values.begin(), values.end(), is_bad);
  if (first == values.end()) return "";
  const auto bad = std::count_if(first, values.end(), is_bad);
  return fmt::format("holds {} at {}{}", *first, place_in(shape, static_cast<size_t>(first - values.begin())),
                     bad == 1 ? "" : fmt::format(", the first of {} such values", bad));
}

void require_usable_weights(const std::string& file, const std::string& name, const TensorData& tensor) {
  const std::vector<float> values = to_float(tensor);
  std::string what = not_finite(values, tensor.shape);
  if (what.empty() && name.ends_with("running_var")) {
    const auto first = std::find_if(values.begin(), values.end(), [](float value) { return value < 0; });
    if (first != values.end())
      what = fmt::format("holds {} at {}, and a variance is not negative", *first,
                         place_in(tensor.shape, static_cast<size_t>(first - values.begin())));
  }
  if (what.empty()) return;
  throw data_error(fmt::format(
      "{}: tensor '{}' {}; the training that wrote it diverged, or the file is damaged: take one from before", file,
      name, what));
}

TensorData float_tensor(std::vector<int64_t> shape, const float* values) {
  int64_t elements = 1;
  for (const int64_t dimension : shape) elements *= dimension;
  TensorData tensor{DType::f32, std::move(shape),
                    std::vector<std::byte>(static_cast<size_t>(elements) * sizeof(float))};
  if (elements > 0) std::memcpy(tensor.bytes.data(), values, tensor.bytes.size());
  return tensor;
}

}  // namespace octet
