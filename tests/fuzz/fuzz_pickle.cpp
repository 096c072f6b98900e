// SPDX-License-Identifier: Apache-2.0
// The pickle machine alone, without the checksums of the zip around it: values that refer to each other within bounds,
// or an octet::Error.
#include <cstdlib>
#include <string_view>

#include "src/base/error.h"
#include "src/net/import/pickle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace octet;
  try {
    const Pickle pickle = parse_pickle(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    if (pickle.root >= pickle.values.size() || pickle.size > size) std::abort();
    for (const PickleValue& value : pickle.values) {
      for (const uint32_t index : value.items) {
        if (index >= pickle.values.size()) std::abort();
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
