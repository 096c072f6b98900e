// SPDX-License-Identifier: Apache-2.0
#include "src/net/import/pytorch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <utility>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/numbers.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/net/import/pickle.h"
#include "src/net/import/zip_directory.h"

namespace octet {
namespace {

using Kind = PickleValue::Kind;

/// First pickle of the older format: the integer 0x1950a86a20f9469cfc6c.
constexpr std::string_view kLegacyMagic{"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15};
constexpr std::string_view kZipMagic{"PK\x03\x04", 4};
constexpr int64_t kLegacyProtocol = 1001;
constexpr size_t kMaxDimensions = 16;
/// All tensors together may be this many times as large as the file. Tensors that share a storage have a copy each.
constexpr uint64_t kMaxGrowth = 2;

constexpr std::array<std::pair<std::string_view, DType>, 10> kStorageTypes = {{
    {"torch FloatStorage", DType::f32},
    {"torch DoubleStorage", DType::f64},
    {"torch HalfStorage", DType::f16},
    {"torch BFloat16Storage", DType::bf16},
    {"torch LongStorage", DType::i64},
    {"torch IntStorage", DType::i32},
    {"torch ShortStorage", DType::i16},
    {"torch CharStorage", DType::i8},
    {"torch ByteStorage", DType::u8},
    {"torch BoolStorage", DType::boolean},
}};

struct StorageId {
  DType dtype;
  std::string key;
  uint64_t bytes;
};

/// Reads type, key and size of a storage from its persistent id.
StorageId storage_id(const Pickle& pickle, const PickleValue& value, const std::string& where) {
  if (value.items.size() < 5) throw data_error(where + ": a storage without type, key and size");
  const std::string& type = pickle.item(value, 1).text;
  const PickleValue& key = pickle.item(value, 2);
  const PickleValue& count = pickle.item(value, 4);
  const auto known =
      std::find_if(kStorageTypes.begin(), kStorageTypes.end(), [&](const auto& entry) { return entry.first == type; });
  if (known == kStorageTypes.end() || key.kind != Kind::text || count.kind != Kind::integer || count.integer < 0) {
    throw data_error(fmt::format("{}: storage '{}' of type '{}' is damaged", where, key.text, type));
  }
  if (value.items.size() > 5 && pickle.item(value, 5).kind != Kind::none) {
    throw data_error(
        fmt::format("{}: storage '{}' is a view of another; save the file with a newer PyTorch", where, key.text));
  }
  const int64_t bytes = saturating_product({count.integer, static_cast<int64_t>(dtype_size(known->second))});
  return {known->second, key.text, static_cast<uint64_t>(bytes)};
}

/// Copies tensors out of storages.
class TensorReader {
 public:
  /// `find` returns the bytes of a storage; `budget` is the most bytes that all copies may take.
  TensorReader(const Pickle& pickle, std::function<std::string_view(const StorageId&)> find, uint64_t budget,
               const std::string& where)
      : pickle_(pickle), find_(std::move(find)), budget_(budget), where_(where) {}

  TensorData read(const std::string& name, const PickleValue& value) {
    const PickleValue& storage_value = pickle_.item(value, 0);
    const PickleValue& offset = pickle_.item(value, 1);
    if (storage_value.kind != Kind::storage || offset.kind != Kind::integer) fail(name, "is damaged");
    const StorageId id = storage_id(pickle_, storage_value, where_);
    const std::vector<int64_t> sizes = numbers(name, pickle_.item(value, 2));
    const std::vector<int64_t> strides = numbers(name, pickle_.item(value, 3));
    if (offset.integer < 0 || sizes.size() != strides.size()) fail(name, "is damaged");

    const std::string_view bytes = find_(id);
    if (bytes.size() < id.bytes) fail(name, fmt::format("needs {} bytes, the file has {}", id.bytes, bytes.size()));
    const size_t element = dtype_size(id.dtype);
    int64_t count = 1, last = offset.integer;
    for (size_t d = 0; d < sizes.size(); ++d) {
      count = saturating_product({count, sizes[d]});
      const int64_t span = saturating_product({std::max<int64_t>(sizes[d] - 1, 0), strides[d]});
      if (__builtin_add_overflow(last, span, &last)) fail(name, "points outside its storage");
    }
    const auto stored = static_cast<int64_t>(bytes.size() / element);
    if (count > 0 && last >= stored) fail(name, "points outside its storage");
    if (count > stored || static_cast<uint64_t>(count) * element > budget_) {
      fail(name, "repeats its storage: more data than the file has");
    }
    budget_ -= static_cast<uint64_t>(count) * element;

    TensorData tensor{id.dtype, sizes, std::vector<std::byte>(static_cast<size_t>(count) * element)};
    if (count > 0) copy(tensor, strides, bytes.data() + static_cast<size_t>(offset.integer) * element);
    return tensor;
  }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    throw data_error(fmt::format("{}: tensor '{}' {}", where_, name, what));
  }

  std::vector<int64_t> numbers(const std::string& name, const PickleValue& tuple) const {
    std::vector<int64_t> values;
    if (tuple.kind != Kind::tuple && tuple.kind != Kind::list) fail(name, "is damaged");
    if (tuple.items.size() > kMaxDimensions) fail(name, fmt::format("has more than {} dimensions", kMaxDimensions));
    for (const uint32_t index : tuple.items) {
      const PickleValue& value = pickle_.at(index);
      if (value.kind != Kind::integer || value.integer < 0) fail(name, "has a size or stride that is no number");
      values.push_back(value.integer);
    }
    return values;
  }

  /// Copies elements with any strides into row-major order. The stride of a dimension of one element is ignored,
  /// because read() has not bounded it.
  static void copy(TensorData& tensor, std::vector<int64_t> strides, const char* from) {
    const size_t element = dtype_size(tensor.dtype);
    for (size_t d = 0; d < strides.size(); ++d)
      if (tensor.shape[d] == 1) strides[d] = 0;
    std::vector<int64_t> index(strides.size(), 0);
    int64_t position = 0;
    for (size_t to = 0; to < tensor.bytes.size(); to += element) {
      std::memcpy(tensor.bytes.data() + to, from + static_cast<size_t>(position) * element, element);
      for (size_t d = strides.size(); d-- > 0;) {
        position += strides[d];
        if (++index[d] < tensor.shape[d]) break;
        position -= strides[d] * tensor.shape[d];
        index[d] = 0;
      }
    }
  }

  const Pickle& pickle_;
  std::function<std::string_view(const StorageId&)> find_;
  uint64_t budget_;
  const std::string& where_;
};

const PickleValue* find_key(const Pickle& pickle, const PickleValue& dict, std::string_view key) {
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue& name = pickle.item(dict, i);
    if (name.kind == Kind::text && name.text == key) return &pickle.item(dict, i + 1);
  }
  return nullptr;
}

/// The keys under which training scripts put weights, the likeliest first: the last weights before their moving
/// average.
constexpr std::array<std::string_view, 8> kWeightKeys = {"state_dict",     "model_state_dict", "model",          "net",
                                                         "state_dict_ema", "model_ema",        "ema_state_dict", "ema"};

/// Finds the dictionary of the weights, at most two keys deep ("ema" may hold a "state_dict"). Tells the user if a
/// second set of weights is left out.
const PickleValue& state_dict(const Pickle& pickle, const std::string& where) {
  constexpr int kDeepest = 2;
  const PickleValue* dict = &pickle.at(pickle.root);
  if (dict->kind != Kind::dict) throw data_error(where + ": holds no dictionary of tensors");
  for (int depth = 0; depth < kDeepest; ++depth) {
    std::vector<std::string_view> found;
    for (const std::string_view key : kWeightKeys) {
      const PickleValue* inner = find_key(pickle, *dict, key);
      if (inner != nullptr && inner->kind == Kind::dict) found.push_back(key);
    }
    if (found.empty()) break;
    if (found.size() > 1)
      say(fmt::format("note: {}: the weights of '{}' are taken, not those of '{}'", where, found[0], found[1]));
    dict = find_key(pickle, *dict, found[0]);
  }
  return *dict;
}

/// Describes a dictionary without named tensors: "'epoch', 'generator' (120 tensors) and 3 more".
std::string keys_of(const Pickle& pickle, const PickleValue& dict) {
  constexpr size_t kShown = 12;
  std::vector<std::string> keys;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue &key = pickle.item(dict, i), &value = pickle.item(dict, i + 1);
    if (key.kind != Kind::text) continue;
    size_t tensors = 0;
    for (size_t k = 0; value.kind == Kind::dict && k + 1 < value.items.size(); k += 2)
      tensors += pickle.item(value, k + 1).kind == Kind::tensor ? 1 : 0;
    keys.push_back(tensors > 0 ? fmt::format("'{}' ({})", key.text, counted(static_cast<long>(tensors), "tensor"))
                               : fmt::format("'{}'", key.text));
  }
  if (keys.empty()) return "no keys";
  const size_t shown = std::min(keys.size(), kShown);
  std::string text = fmt::format("the keys {}", fmt::join(keys.begin(), keys.begin() + static_cast<long>(shown), ", "));
  return keys.size() > shown ? fmt::format("{} and {} more", text, keys.size() - shown) : text;
}

TensorFile read_tensors(const Pickle& pickle, TensorReader reader, const std::string& where) {
  TensorFile file;
  const PickleValue& dict = state_dict(pickle, where);
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue& key = pickle.item(dict, i);
    const PickleValue& value = pickle.item(dict, i + 1);
    if (key.kind != Kind::text || value.kind != Kind::tensor) continue;
    file.tensors[key.text] = reader.read(key.text, value);
  }
  if (file.tensors.empty())
    throw data_error(
        fmt::format("{}: holds no tensors under names, but {}; save the weights alone: torch.save(model.state_dict(), "
                    "FILE)",
                    where, keys_of(pickle, dict)));
  return file;
}

TensorFile parse_zip(std::string_view bytes, const std::string& where) {
  const ZipDirectory zip(bytes, where);
  constexpr std::string_view kPickle = "data.pkl";
  const std::string pickle_name = zip.name_ending_in("/data.pkl");
  if (pickle_name.empty()) throw data_error(where + ": a zip file, but not one of torch.save (no data.pkl)");
  const std::string folder = pickle_name.substr(0, pickle_name.size() - kPickle.size());
  if (zip.has(folder + "byteorder") && zip.entry(folder + "byteorder") != "little") {
    throw data_error(where + ": written on a big-endian machine");
  }
  const Pickle pickle = parse_pickle(zip.entry(pickle_name), where);
  std::map<std::string, std::string_view> checked;  // each storage's CRC-32 is computed once
  const auto find = [&](const StorageId& id) {
    const auto known = checked.find(id.key);
    if (known != checked.end()) return known->second;
    return checked[id.key] = zip.entry(folder + "data/" + id.key);
  };
  return read_tensors(pickle, TensorReader(pickle, find, kMaxGrowth * bytes.size(), where), where);
}

/// The older format: several pickles one after the other, then the storages.
class LegacyFile {
 public:
  LegacyFile(std::string_view bytes, const std::string& where) : rest_(bytes), where_(where) {}

  TensorFile read() {
    const uint64_t budget = kMaxGrowth * rest_.size();
    rest_.remove_prefix(kLegacyMagic.size());
    const Pickle protocol = next_pickle();
    if (protocol.at(protocol.root).integer != kLegacyProtocol) fail("an unknown protocol version");
    const Pickle system = next_pickle();
    const PickleValue* little = find_key(system, system.at(system.root), "little_endian");
    if (little == nullptr || little->integer != 1) fail("written on a big-endian machine");
    const Pickle pickle = next_pickle();
    read_storages(pickle, next_pickle());
    const auto find = [&](const StorageId& id) {
      const auto found = storages_.find(id.key);
      if (found == storages_.end()) fail(fmt::format("storage '{}' is missing", id.key));
      return found->second;
    };
    return read_tensors(pickle, TensorReader(pickle, find, budget, where_), where_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw data_error(fmt::format("{}: {}", where_, what)); }

  Pickle next_pickle() {
    Pickle pickle = parse_pickle(rest_, where_);
    rest_.remove_prefix(pickle.size);
    return pickle;
  }

  std::string_view take(uint64_t size) {
    if (size > rest_.size()) fail("ends within a tensor (is the file truncated?)");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  /// Reads the storages in the order of the list of keys: for each the number of elements as int64, then the elements.
  void read_storages(const Pickle& pickle, const Pickle& keys) {
    std::map<std::string, StorageId> ids;
    for (const PickleValue& value : pickle.values) {
      if (value.kind != Kind::storage) continue;
      StorageId id = storage_id(pickle, value, where_);
      ids.emplace(id.key, std::move(id));
    }
    for (const uint32_t index : keys.at(keys.root).items) {
      const std::string& key = keys.at(index).text;
      const auto found = ids.find(key);
      if (found == ids.end()) fail(fmt::format("storage '{}' belongs to no tensor", key));
      int64_t count = 0;
      std::memcpy(&count, take(sizeof(count)).data(), sizeof(count));
      const auto element = static_cast<int64_t>(dtype_size(found->second.dtype));
      if (count < 0 || static_cast<uint64_t>(saturating_product({count, element})) != found->second.bytes) {
        fail(fmt::format("storage '{}' has another size than its tensor says", key));
      }
      storages_[key] = take(found->second.bytes);
    }
  }

  std::string_view rest_;
  const std::string& where_;
  std::map<std::string, std::string_view> storages_;
};

}  // namespace

TensorFile parse_pytorch_file(const std::byte* data, size_t size, const std::string& name) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.starts_with(kZipMagic)) return parse_zip(bytes, name);
  if (bytes.starts_with(kLegacyMagic)) return LegacyFile(bytes, name).read();
  throw data_error(fmt::format("{}: not a file of torch.save (neither its zip nor its older format)", name));
}

TensorFile read_pytorch_file(const std::string& path) {
  const std::string contents = read_file(path);
  return parse_pytorch_file(reinterpret_cast<const std::byte*>(contents.data()), contents.size(), path);
}

TensorFile read_weights_file(const std::string& path) {
  if (path.ends_with(".safetensors")) return read_safetensors(path);
  if (path.ends_with(".pth") || path.ends_with(".pt") || path.ends_with(".th")) return read_pytorch_file(path);
  throw usage_error(path + ": weights are read from .safetensors, .pth, .pt and .th files");
}

bool has_folded_batch_norm(const TensorFile& weights) {
  bool bias = false;
  for (const auto& [name, tensor] : weights.tensors) {
    if (name.ends_with(".running_mean")) return false;
    const size_t layer = name.size() - std::string_view("weight").size();
    bias = bias || (name.ends_with(".weight") && tensor.shape.size() == 4 &&
                    weights.tensors.contains(name.substr(0, layer) + "bias"));
  }
  return bias;
}

}  // namespace octet
