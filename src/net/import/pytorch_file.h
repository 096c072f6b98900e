// SPDX-License-Identifier: Apache-2.0
// Weight files of torch.save: zip files (since PyTorch 1.6) and the older format, pickles followed by storages; and
// which weights a file holds. The pickles and zip archives that they are made of, and numpy's files of arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/safetensors.h"

namespace octet {

/// Returns the tensors of a state_dict, row-major. The state_dict is the dictionary under a key that training scripts
/// use
/// ("state_dict", "model", "ema" ...; kWeightKeys lists all in order of preference), else the file's outermost
/// dictionary; values in it that are not tensors are left out. Nothing in the file is executed: a file that needs a
/// class or function other than tensors and plain containers is refused. Throws Error(data), which lists the keys
/// found.
TensorFile read_pytorch_file(const std::string& path);

/// Reads a file that is in memory; `name` stands for the path in messages.
TensorFile parse_pytorch_file(const std::byte* data, size_t size, const std::string& name);

/// Reads the weights of a .safetensors, .pth, .pt or .th file. Throws Error(usage) for another ending.
TensorFile read_weights_file(const std::string& path);

/// Whether BatchNorm is folded into the convolutions of a weights file: one of them has a bias, and nothing has running
/// statistics. A network without BatchNorm looks the same.
bool has_folded_batch_norm(const TensorFile& weights);

// The Python pickles that torch.save writes, read with restrictions: plain containers, numbers, strings, tensors and
// their storages. Nothing is executed, and a pickle that refers to any other class or function is refused.
//
// All values are in one vector and refer to each other by index, so that deep nesting, shared values and cycles need no
// recursion. Memory is proportional to the pickle's length, with a hard limit on the number of values.

struct PickleValue {
  enum class Kind {
    none,
    boolean,  ///< integer: 0 or 1
    integer,
    real,
    text,     ///< str or bytes
    tuple,    ///< items
    list,     ///< items
    dict,     ///< items: key, value, key, value, ... also for OrderedDict
    global,   ///< text: "torch FloatStorage"
    storage,  ///< items of the persistent id: "storage", type, key, location, element count
    tensor,   ///< items: storage, offset, sizes, strides (all in elements)
  };
  Kind kind = Kind::none;
  int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<uint32_t> items;  ///< indices into Pickle::values
};

struct Pickle {
  std::vector<PickleValue> values;
  uint32_t root = 0;
  size_t size = 0;  ///< bytes read, up to and including STOP
  const PickleValue& at(uint32_t index) const { return values[index]; }
  const PickleValue& item(const PickleValue& container, size_t i) const { return values[container.items[i]]; }
};

/// Reads one pickle (protocols 2 to 5) from the start of the bytes. Throws Error(data), whose message begins with
/// `where`.
Pickle parse_pickle(std::string_view bytes, const std::string& where);

/// The entries of a zip or zip64 file (PKWARE APPNOTE 6.3.9) by name. They must be stored, not compressed, as
/// torch.save and np.savez write them; `writer` names the one that the user should save with. Throws Error(data) for
/// truncated, compressed or encrypted entries and offsets outside the file.
class ZipDirectory {
 public:
  ZipDirectory(std::string_view bytes, std::string where, std::string writer = "torch.save");

  std::vector<std::string> names() const;

  /// Returns the name that ends in `suffix`, "" if there is none or more than one.
  std::string name_ending_in(std::string_view suffix) const;
  bool has(const std::string& name) const { return entries_.contains(name); }
  /// Returns the contents of an entry, a part of `bytes`. Throws if it is missing or its CRC-32 differs.
  std::string_view entry(const std::string& name) const;

 private:
  struct Entry {
    uint64_t size, header_offset;
    uint32_t crc;
  };
  struct Tail {
    uint64_t entries, offset;
  };

  [[noreturn]] void fail(const std::string& what) const;
  template <typename T>
  T read(uint64_t offset) const;
  std::string_view slice(uint64_t offset, uint64_t size) const;
  Tail find_tail() const;
  uint64_t read_entry(uint64_t offset);

  std::string_view bytes_;
  std::string where_, writer_;
  std::map<std::string, Entry> entries_;
  uint64_t total_size_ = 0;
};

/// Returns the arrays of a .npz file by name, or that of a .npy file under the name "". They must be stored in C order,
/// little endian and uncompressed. Throws Error(data), which names the file, the array, what is wrong and the cure.
TensorFile read_numpy_file(const std::string& path);

/// Reads a file that is in memory; `name` stands for the path in messages.
TensorFile parse_numpy_file(const std::byte* data, size_t size, const std::string& name);

}  // namespace octet
