// Computes what an ONNX model means, by the operators' definitions (onnx.ai/onnx/operators), in plain loops.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace octet::test {

struct Values {
  std::vector<int64_t> shape;
  std::vector<double> numbers;  ///< row-major
};

/// Every value of the model for `images`, by name.
std::map<std::string, Values> walk_onnx(const std::string& bytes, const Values& images);

}  // namespace octet::test
