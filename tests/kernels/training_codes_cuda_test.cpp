// SPDX-License-Identifier: Apache-2.0
// From values to rows of codes and back, in every type, with and without lanes behind the channels.
#include <gtest/gtest.h>

#include "kernels/training/qat_epilogue.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/cuda_tensors.h"

namespace octet::kernels {
namespace {

using test::DeviceArray;

struct RowCase {
  long rows;
  int channels, stride;
};

/// Odd and even channels, wide and narrow rows, more rows than a block has threads.
constexpr RowCase kRowCases[] = {{1, 1, 4},     {5, 3, 4},   {700, 4, 4}, {37, 16, 16},
                                 {300, 24, 32}, {9, 64, 64}, {3, 33, 48}};
constexpr QParams kCodeRanges[] = {{0.25f, 7, 0, 255}, {0.5f, 0, -128, 127}, {0.125f, 3, 0, 15}};

TEST(TrainingCodesCuda, QuantizedRowsAreQuantize) {
  OCTET_NEEDS_GPU();
  for (const QParams& q : kCodeRanges) {
    for (const RowCase& c : kRowCases) {
      const size_t bytes = static_cast<size_t>(c.rows) * c.stride;
      std::vector<float> x = test::difficult_values(q, static_cast<size_t>(c.rows) * c.channels);
      x.resize(static_cast<size_t>(c.rows) * c.channels);
      std::vector<uint8_t> expected(bytes + 16, 0xcd);  // what lies behind stays
      for (size_t at = 0; at < bytes; ++at) {
        const size_t row = at / c.stride, channel = at % c.stride;
        const bool used = channel < static_cast<size_t>(c.channels);
        expected[at] = used ? static_cast<uint8_t>(quantize(x[row * c.channels + channel], q)) : 0;
      }
      const DeviceArray<float> from(x);
      const DeviceArray<uint8_t> codes(std::vector<uint8_t>(bytes + 16, 0xcd));
      cuda_quantize_rows({nullptr, c.rows, c.channels, c.stride, q}, from.data(), codes.data(), nullptr);
      EXPECT_EQ(codes.read(), expected) << c.rows << " x " << c.channels << " of " << c.stride;
    }
  }
}

TEST(TrainingCodesCuda, RealValuesAreDequantize) {
  OCTET_NEEDS_GPU();
  for (const ValueType type : test::kTypes) {
    for (const QParams& q : kCodeRanges) {
      for (const RowCase& c : kRowCases) {
        std::vector<uint8_t> codes(static_cast<size_t>(c.rows) * c.stride);
        for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 37 + i / 256);
        std::vector<float> values;
        for (size_t at = 0; at < codes.size(); ++at) {
          if (at % c.stride >= static_cast<size_t>(c.channels)) continue;
          values.push_back(dequantize(q.is_signed() ? static_cast<int8_t>(codes[at]) : codes[at], q));
        }
        std::vector<uint8_t> expected = test::narrowed(values, type);
        for (const size_t offset : {0u, 1u}) {  // the second cannot be read in packs
          expected.resize(values.size() * test::bytes_of(type));
          expected.resize(expected.size() + 16, 0xcd);
          const DeviceArray<uint8_t> from(codes, offset), y(std::vector<uint8_t>(expected.size(), 0xcd));
          cuda_real_values({from.data(), c.rows, c.channels, c.stride, q}, type, y.data(), nullptr);
          EXPECT_EQ(y.read(), expected) << c.rows << " x " << c.channels << " of " << c.stride;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octet::kernels
