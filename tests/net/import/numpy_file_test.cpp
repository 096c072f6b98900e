// SPDX-License-Identifier: Apache-2.0
// numpy's files: .npy and .npz as numpy writes them, and what cannot be read refused by file, array and cure.
// tests/runtime/python_module_test.py reads files that numpy itself wrote.
#include "src/net/import/numpy_file.h"

#include <gtest/gtest.h>

#include "tests/base/damage.h"
#include "tests/error_of.h"
#include "tests/net/import/zip_bytes.h"

namespace octet {
namespace {

using std::string_literals::operator""s;
using test::npy;
using test::npy_of_floats;
using test::zip;

TensorFile arrays_of(const std::string& bytes) {
  return parse_numpy_file(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "x.npz");
}

void expect_refused(const std::string& bytes, const std::string& part) {
  const std::string message = error_of([&] { arrays_of(bytes); });
  EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
  EXPECT_TRUE(message.starts_with("x.npz: ")) << message;
}

TEST(NumpyFile, ArraysComeByNameWithTypeShapeAndBytes) {
  const std::vector<float> values = {1, -2.5f, 3, 0, 1e-30f, 7};
  const TensorFile one = arrays_of(npy_of_floats("(2, 3)", values));
  ASSERT_EQ(one.tensors.size(), 1u);
  EXPECT_EQ(one.tensors.at(""), float_tensor({2, 3}, values.data()));
  const TensorFile two =
      arrays_of(zip({{"images.npy", npy("{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }", "abcd")},
                     {"b/c.npy", npy_of_floats("(1, 6, 1)", values)},
                     {"empty.npy", npy_of_floats("(0, 3)", {})},
                     {"scalar.npy", npy_of_floats("()", {2})},
                     {"readme.txt", "no array"}}));
  ASSERT_EQ(two.tensors.size(), 4u);
  EXPECT_EQ(two.tensors.at("images").dtype, DType::u8);
  EXPECT_EQ(two.tensors.at("images").shape, std::vector<int64_t>{4});
  EXPECT_EQ(two.tensors.at("images").bytes[2], std::byte{'c'});
  EXPECT_EQ(two.tensors.at("b/c"), float_tensor({1, 6, 1}, values.data()));
  EXPECT_EQ(two.tensors.at("empty").shape, (std::vector<int64_t>{0, 3}));
  EXPECT_TRUE(two.tensors.at("scalar").shape.empty());
  // Version 2 has four bytes of length; keys may have any order.
  const std::string header = "{'shape': (2, 3), 'fortran_order': False, 'descr': '<f8'}";
  EXPECT_EQ(arrays_of(npy(header, std::string(48, '\0'), 2)).tensors.at("").dtype, DType::f64);
}

TEST(NumpyFile, WhatCannotBeReadIsNamedWithTheCure) {
  const std::string good = npy_of_floats("(2, 3)", std::vector<float>(6));
  const auto header = [&](const std::string& text) { return npy(text, std::string(24, '\0')); };
  expect_refused("", "no file of numpy: np.savez(FILE, array)");
  expect_refused("{\"a\": 1}", "no file of numpy");
  for (const size_t size : {7u, 9u, 40u}) expect_refused(good.substr(0, size), "(is the file truncated?)");
  expect_refused(good.substr(0, good.size() - 1), "23 bytes of data, F32 [2, 3] needs 24 (is the file truncated?)");
  expect_refused(good + "x", "25 bytes of data");
  expect_refused(header("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }"), "np.ascontiguousarray");
  expect_refused(header("{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }"),
                 "of type '>f4'; save little-endian");
  expect_refused(header("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }"), "of type '|O'");
  expect_refused(header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }"), "an array of records");
  expect_refused(header("{'fortran_order': False, 'shape': (2, 3), }"), "a header without 'descr':");
  for (const char* shape : {"(2, -3)", "(2, 3", "6", "(2, x)", "(99999999999999999999,)"})
    expect_refused(header("{'descr': '<f4', 'fortran_order': False, 'shape': "s + shape + ", }"), "(shape)");
  expect_refused(header("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }"),
                 "needs 92233");
  std::string versioned = good;
  versioned[6] = 4;
  expect_refused(versioned, "format version 4, known are 1 to 3");
  expect_refused(zip({{"a.npy", good, 8}}), "'a.npy' is compressed; np.savez stores entries as they are");
  expect_refused(zip({{"a.npy", good.substr(0, 60)}}), "array 'a': ends within its header");
  const std::string file = zip({{"a.npy", good}});
  expect_refused(file.substr(0, file.size() - 30), "(is the file truncated?)");
}

TEST(NumpyFile, DamagedFilesAreRefusedOrRead) {
  const std::string file = zip({{"a.npy", npy_of_floats("(2, 3)", {1, 2, 3, 4, 5, 6})}});
  const auto refusal = [](const std::string& bytes) {
    return error_of([&] {
      for (const auto& [name, tensor] : arrays_of(bytes).tensors) ASSERT_LE(tensor.bytes.size(), bytes.size());
    });
  };
  EXPECT_GT(test::refused_of_damaged(file, 3, refusal), 2000);  // the checksum covers the array
}

}  // namespace
}  // namespace octet
