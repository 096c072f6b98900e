// SPDX-License-Identifier: Apache-2.0
// Computes what an ONNX model means, by the operators' definitions (onnx.ai/onnx/operators), in plain loops.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace octet::test {

struct Values {
  std::vector<int64_t> shape;
  std::vector<double> numbers;  ///< row-major
};

/// Every value of the model for `images`, by name. What `given` names goes on with those numbers in place of its own,
/// so that each value follows from given ones alone and no difference adds up on its way through the network.
std::map<std::string, Values> walk_onnx(const std::string& bytes, const Values& images,
                                        const std::map<std::string, std::vector<double>>& given = {});

}  // namespace octet::test
