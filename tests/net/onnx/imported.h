// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/net/onnx/onnx.h"
#include "tests/net/onnx/model_builder.h"

namespace octet::test {

inline ImportedNetwork imported(const std::string& bytes, const std::vector<std::string>& outputs = {}) {
  return parse_onnx(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "test.onnx", outputs);
}

}  // namespace octet::test
