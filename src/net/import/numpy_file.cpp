// SPDX-License-Identifier: Apache-2.0
#include "src/net/import/numpy_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/numbers.h"
#include "src/net/import/zip_directory.h"

namespace octet {
namespace {

constexpr std::string_view kArrayStart{"\x93NUMPY", 6}, kZipStart{"PK\x03\x04", 4}, kEnding = ".npy";
constexpr size_t kMostDimensions = 16;

/// numpy's names of the types; '|' stands for "no byte order", '<' for little endian.
constexpr std::array<std::pair<std::string_view, DType>, 10> kTypes = {{{"<f4", DType::f32},
                                                                        {"<f8", DType::f64},
                                                                        {"<f2", DType::f16},
                                                                        {"|u1", DType::u8},
                                                                        {"|i1", DType::i8},
                                                                        {"<i2", DType::i16},
                                                                        {"<i4", DType::i32},
                                                                        {"<i8", DType::i64},
                                                                        {"|b1", DType::boolean},
                                                                        {"<b1", DType::boolean}}};

/// Reads one .npy: magic, version, length of the header, the header, the data.
class Array {
 public:
  Array(std::string_view bytes, std::string where) : rest_(bytes), where_(std::move(where)) {}

  TensorData read() {
    if (take(kArrayStart.size()) != kArrayStart) fail("does not begin as numpy's arrays do");
    const auto version = static_cast<uint8_t>(take(2)[0]);
    if (version < 1 || version > 3) fail(fmt::format("format version {}, known are 1 to 3", version));
    uint32_t length = 0;
    const size_t length_bytes = version == 1 ? 2 : 4;
    std::memcpy(&length, take(length_bytes).data(), length_bytes);
    const TensorData described = header(take(length));
    const int64_t count = saturating_product(described.shape);
    const auto wanted =
        static_cast<uint64_t>(saturating_product({count, static_cast<int64_t>(dtype_size(described.dtype))}));
    if (wanted != rest_.size())
      fail(fmt::format("{} bytes of data, {} [{}] needs {} (is the file truncated?)", rest_.size(),
                       dtype_name(described.dtype), fmt::join(described.shape, ", "), wanted));
    TensorData tensor = described;
    const auto* data = reinterpret_cast<const std::byte*>(rest_.data());
    tensor.bytes.assign(data, data + rest_.size());
    return tensor;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw data_error(fmt::format("{}: {}", where_, what)); }

  std::string_view take(size_t size) {
    if (size > rest_.size()) fail("ends within its header (is the file truncated?)");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  /// Reads "{'descr': '<f4', 'fortran_order': False, 'shape': (300, 3, 224, 224), }", a Python literal whose keys may
  /// have any order.
  TensorData header(std::string_view text) const {
    TensorData tensor;
    tensor.dtype = type(value(text, "'descr':"));
    const std::string_view fortran = value(text, "'fortran_order':");
    if (fortran.starts_with("True")) fail("lies in Fortran order; save it in C order: np.ascontiguousarray(array)");
    if (!fortran.starts_with("False")) fail("a damaged header (fortran_order)");
    std::string_view sizes = value(text, "'shape':");
    if (!sizes.starts_with('(')) fail("a damaged header (shape)");
    for (sizes.remove_prefix(1);;) {
      sizes.remove_prefix(std::min(sizes.find_first_not_of(", "), sizes.size()));
      if (sizes.starts_with(')')) return tensor;
      int64_t size = -1;
      const auto [end, error] = std::from_chars(sizes.data(), sizes.data() + sizes.size(), size);
      if (error != std::errc() || size < 0) fail("a damaged header (shape)");
      if (tensor.shape.size() == kMostDimensions) fail(fmt::format("more than {} dimensions", kMostDimensions));
      tensor.shape.push_back(size);
      sizes.remove_prefix(static_cast<size_t>(end - sizes.data()));
    }
  }

  /// Returns the header's text from the value of a key on.
  std::string_view value(std::string_view text, std::string_view key) const {
    const size_t at = text.find(key);
    if (at == std::string_view::npos) fail(fmt::format("a header without {}", key));
    text.remove_prefix(at + key.size());
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    return text;
  }

  DType type(std::string_view descr) const {
    const size_t end = descr.find('\'', 1);
    if (!descr.starts_with('\'') || end == std::string_view::npos)
      fail("an array of records; save plain numbers (float32)");
    const std::string_view name = descr.substr(1, end - 1);
    for (const auto& [known, dtype] : kTypes)
      if (name == known) return dtype;
    fail(fmt::format("of type '{}'; save little-endian numbers: array.astype(np.float32)", name));
  }

  std::string_view rest_;
  std::string where_;
};

}  // namespace

TensorFile parse_numpy_file(const std::byte* data, size_t size, const std::string& name) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  TensorFile file;
  if (bytes.starts_with(kArrayStart)) {
    file.tensors[""] = Array(bytes, name).read();
    return file;
  }
  if (!bytes.starts_with(kZipStart))
    throw data_error(fmt::format("{}: no file of numpy: np.savez(FILE, array) writes one (.npz)", name));
  const ZipDirectory zip(bytes, name, "np.savez");
  for (const std::string& entry : zip.names()) {
    if (!entry.ends_with(kEnding)) continue;
    const std::string key = entry.substr(0, entry.size() - kEnding.size());
    file.tensors[key] = Array(zip.entry(entry), fmt::format("{}: array '{}'", name, key)).read();
  }
  return file;
}

TensorFile read_numpy_file(const std::string& path) {
  const std::string contents = read_file(path);
  return parse_numpy_file(reinterpret_cast<const std::byte*>(contents.data()), contents.size(), path);
}

}  // namespace octet
