// SPDX-License-Identifier: Apache-2.0
// safetensors: bytes as the format says, everything else refused, no damage crashes the reader.
#include "src/base/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "src/base/files.h"
#include "tests/base/damage.h"
#include "tests/error_of.h"

namespace octet {
namespace {

TensorFile sample() {
  TensorFile file;
  const float values[] = {1.5f, -2.0f, 0.25f, 4.0f, 0.0f, -0.5f};
  file.tensors["b.weight"] = float_tensor({2, 3}, values);
  file.tensors["a.codes"] = {DType::i8, {3}, {std::byte{1}, std::byte{255}, std::byte{127}}};
  file.tensors["empty"] = {DType::f16, {0, 5}, {}};
  file.tensors["scalar"] = {DType::i64, {}, std::vector<std::byte>(8, std::byte{2})};
  file.metadata = {{"format", "pt"}, {"note", "caf\u00e9 \"quoted\""}};
  return file;
}

TensorFile parse(const std::string& bytes) {
  return parse_safetensors(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "test.safetensors");
}

/// A file of this header and `data_size` zeros.
std::string with_header(const std::string& header, size_t data_size) {
  const uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + std::string(data_size, '\0');
}

std::string refusal(const std::string& bytes) {
  return error_of([&] { parse(bytes); });
}

TEST(Safetensors, RoundTrip) {
  const TensorFile file = sample();
  const std::string bytes = serialize_safetensors(file);
  const TensorFile read = parse(bytes);
  EXPECT_EQ(read.tensors, file.tensors);
  EXPECT_EQ(read.metadata, file.metadata);
  EXPECT_EQ(serialize_safetensors(read), bytes);
}

TEST(Safetensors, BytesAreAsDocumented) {
  TensorFile file;
  const float values[] = {1.0f, 2.0f};
  file.tensors["z"] = float_tensor({2}, values);
  file.tensors["a"] = {DType::u8, {1}, {std::byte{9}}};
  const std::string bytes = serialize_safetensors(file);
  const std::string header = R"({"a":{"data_offsets":[8,9],"dtype":"U8","shape":[1]},)"
                             R"("z":{"data_offsets":[0,8],"dtype":"F32","shape":[2]}})";
  ASSERT_EQ(bytes.size(), 128u + 9u);  // 8 + 105 bytes, padded with spaces to a multiple of 64
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x78\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(bytes.substr(8, header.size()), header);
  EXPECT_EQ(bytes.substr(8 + header.size(), 128 - 8 - header.size()), std::string(120 - header.size(), ' '));
  EXPECT_EQ(bytes.substr(128), std::string("\0\0\x80\x3f\0\0\0\x40\x09", 9));
}

TEST(Safetensors, FilesRoundTrip) {
  const auto folder = std::filesystem::path(testing::TempDir()) / ("octet_safetensors_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "sample.safetensors").string();
  write_safetensors(path, sample());
  EXPECT_EQ(read_safetensors(path).tensors, sample().tensors);
  EXPECT_NE(error_of([&] { write_safetensors((folder / "no" / "x.safetensors").string(), sample()); }), "");
  EXPECT_NE(error_of([&] { read_safetensors((folder / "missing.safetensors").string()); }).find("missing.safetensors"),
            std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(Safetensors, RefusesToWriteWhatDoesNotFit) {
  TensorFile file = sample();
  file.tensors["b.weight"].shape = {7};
  EXPECT_NE(error_of([&] { serialize_safetensors(file); }).find("b.weight"), std::string::npos);
  file = sample();
  file.metadata["name"] = "\xff\xfe";
  EXPECT_NE(error_of([&] { serialize_safetensors(file); }).find("UTF-8"), std::string::npos);
}

struct BadHeader {
  const char* name;
  const char* header;
  size_t data_size;
  const char* expected;
};

const BadHeader kBadHeaders[] = {
    {"NotJson", "{\"a\":", 0, "not valid JSON"},
    {"NotObject", "[]", 0, "not a JSON object"},
    {"Deep", "{\"a\":[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]}", 0, "nested deeper"},
    {"KeyTwice", R"({"__metadata__":{"a":"1","a":"2"}})", 0, "'a' twice"},
    {"MetadataNumber", R"({"__metadata__":{"a":1}})", 0, "__metadata__.a is not a string"},
    {"UnknownDtype", R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", 1, "unknown dtype 'F8_E4M3'"},
    {"UnknownKey", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1, "unknown key 'x'"},
    {"NoShape", R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "'shape' is missing"},
    {"NegativeShape", R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "no size"},
    {"FloatShape", R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, "no size"},
    {"Backwards", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "[begin, end]"},
    {"ThreeOffsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", 1, "[begin, end]"},
    {"BeyondTheEnd", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1, "truncated?"},
    {"ShapeAndBytes", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "4 bytes do not fit F32 [2]"},
    {"ShapeOverflow", R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}})", 0,
     "do not fit"},
    {"Overlap",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3,
     "'b' begins at byte 1"},
    {"Hole", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "begins at byte 1"},
    {"DataLeftOver", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2, "2 bytes of data"},
};

class SafetensorsRefuses : public testing::TestWithParam<BadHeader> {};

TEST_P(SafetensorsRefuses, NamingFileAndPlace) {
  const std::string message = refusal(with_header(GetParam().header, GetParam().data_size));
  EXPECT_NE(message.find(GetParam().expected), std::string::npos) << message;
  EXPECT_TRUE(message.starts_with("test.safetensors: ")) << message;
}

INSTANTIATE_TEST_SUITE_P(Headers, SafetensorsRefuses, testing::ValuesIn(kBadHeaders),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Safetensors, RefusesHeadersLongerThanTheFile) {
  std::string bytes = with_header("{}", 0);
  bytes[0] = 3;
  EXPECT_NE(refusal(bytes).find("header of 3 bytes"), std::string::npos);
  bytes.replace(0, 8, 8, '\xff');
  EXPECT_NE(refusal(bytes).find("truncated"), std::string::npos);
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string bytes = serialize_safetensors(sample());
  for (size_t length = 0; length < bytes.size(); ++length) {
    // A heap copy of exactly this length: a sanitizer sees any read beyond it.
    const std::vector<char> prefix(bytes.begin(), bytes.begin() + static_cast<long>(length));
    EXPECT_NE(
        error_of([&] { parse_safetensors(reinterpret_cast<const std::byte*>(prefix.data()), prefix.size(), "x"); }), "")
        << length;
  }
}

TEST(Safetensors, RandomDamageNeverCrashes) {
  EXPECT_GT(test::refused_of_damaged(serialize_safetensors(sample()), 1, refusal),
            1000);  // most of this file is header
}

TEST(ToFloat, ConvertsEveryFloatType) {
  const auto halves = [](DType dtype, std::vector<uint16_t> values) {
    TensorData tensor{dtype, {static_cast<int64_t>(values.size())}, std::vector<std::byte>(values.size() * 2)};
    std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
    return to_float(tensor);
  };
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(halves(DType::f16, {0x3c00, 0xc000, 0x7bff, 0x0001, 0x0400, 0xfc00, 0x3555}),
            (std::vector<float>{1.0f, -2.0f, 65504.0f, 0x1p-24f, 0x1p-14f, -infinity, 0.333251953125f}));
  EXPECT_TRUE(std::isnan(halves(DType::f16, {0x7e00})[0]));
  EXPECT_TRUE(std::signbit(halves(DType::f16, {0x8000})[0]));
  EXPECT_EQ(halves(DType::bf16, {0x3f80, 0xc040, 0x7f80}), (std::vector<float>{1.0f, -3.0f, infinity}));
  const double wide[] = {0.1, -1e300};
  TensorData doubles{DType::f64, {2}, std::vector<std::byte>(16)};
  std::memcpy(doubles.bytes.data(), wide, 16);
  EXPECT_EQ(to_float(doubles), (std::vector<float>{0.1f, -infinity}));
  EXPECT_NE(error_of([] { to_float({DType::i32, {1}, std::vector<std::byte>(4)}); }).find("I32"), std::string::npos);
}

}  // namespace
}  // namespace octet
