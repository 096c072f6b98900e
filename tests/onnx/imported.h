#pragma once

#include <gtest/gtest.h>

#include <string>

#include "src/onnx/import.h"
#include "tests/onnx/model_builder.h"

namespace octet::test {

inline ImportedNetwork imported(const std::string& bytes) {
  return parse_onnx(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "test.onnx");
}

}  // namespace octet::test
