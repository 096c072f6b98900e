// Looking up float parameters by name.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "src/quant/fuse.h"

namespace octet {

/// params[name]; throws Error(data) if it is missing or does not have `size` values.
const std::vector<float>& find_parameter(const FloatParams& params, const std::string& name, size_t size);

}  // namespace octet
