// SPDX-License-Identifier: Apache-2.0
// Files given where others are expected are told apart by their first bytes.
#include "src/base/files.h"

#include <gtest/gtest.h>

#include "src/base/safetensors.h"
#include "tests/error_of.h"

namespace octet {
namespace {

const std::byte* bytes_of(const std::string& text) { return reinterpret_cast<const std::byte*>(text.data()); }

/// ir_version 8, producer_name "pytorch" and more, as onnx's Python and PyTorch begin a file.
const std::string kModel = "\x08\x08\x12\x07pytorch" + std::string(100, 'x');

TEST(FileKind, EachIsItselfAndNotTheOther) {
  TensorFile file;
  const float value = 1;
  file.tensors["weight"] = float_tensor({1}, &value);
  const std::string tensors = serialize_safetensors(file);
  EXPECT_TRUE(is_safetensors(bytes_of(tensors), tensors.size()));
  EXPECT_FALSE(is_onnx(bytes_of(tensors), tensors.size()));
  EXPECT_TRUE(is_onnx(bytes_of(kModel), kModel.size()));
  EXPECT_FALSE(is_safetensors(bytes_of(kModel), kModel.size()));
  for (const std::string& other : {std::string(), std::string("\x08\x08"), std::string(64, '\0'), std::string("{}"),
                                   std::string("\x89PNG\r\n\x1a\n"), std::string("PK\x03\x04 a PyTorch file")}) {
    EXPECT_FALSE(is_onnx(bytes_of(other), other.size())) << other;
    EXPECT_FALSE(is_safetensors(bytes_of(other), other.size())) << other;
  }
}

TEST(FileKind, AnOnnxFileIsNoTruncatedSafetensors) {
  const auto refusal = [](const std::string& text) {
    return error_of([&] { parse_safetensors(bytes_of(text), text.size(), "net.bin"); });
  };
  EXPECT_NE(refusal(kModel).find("net.bin: an ONNX file, not safetensors; a recipe takes it as model.onnx"),
            std::string::npos)
      << refusal(kModel);
  for (const char* first : {"PK\x03\x04", "\x80\x02\x8a\x0a"})
    EXPECT_NE(refusal(first + std::string(64, '\x70')).find("net.bin: weights of PyTorch, not safetensors"),
              std::string::npos);
  EXPECT_NE(refusal(std::string(64, '\x70')).find("truncated, or no safetensors file?"), std::string::npos);
}

}  // namespace
}  // namespace octet
