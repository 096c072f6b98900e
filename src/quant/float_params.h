// Float parameters by name.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

/// Row-major as in PyTorch.
using FloatParams = std::map<std::string, std::vector<float>>;

/// params[name]; throws Error(data) if it is missing or does not have `size` values.
const std::vector<float>& find_parameter(const FloatParams& params, std::string_view name, size_t size);

}  // namespace octet
