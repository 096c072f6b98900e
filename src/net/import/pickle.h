// SPDX-License-Identifier: Apache-2.0
// The Python pickles that torch.save writes, read with restrictions: plain containers, numbers, strings, tensors and
// their storages. Nothing is executed, and a pickle that refers to any other class or function is refused.
//
// All values are in one vector and refer to each other by index, so that deep nesting, shared values and cycles need no
// recursion. Memory is proportional to the pickle's length, with a hard limit on the number of values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

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

}  // namespace octet
