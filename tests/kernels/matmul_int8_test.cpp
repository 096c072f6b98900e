// SPDX-License-Identifier: Apache-2.0
// Products of images: worked numbers, and every path against the definition.
#include "kernels/operators/attention.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/conv/conv2d.h"

namespace octet::kernels {
namespace {

using Bytes = std::vector<uint8_t>;

struct alignas(64) Line {
  std::byte bytes[64];
};

void cpu_matmul(CpuIsa isa, const MatmulShape& shape, const MatmulParams& params, Range units, const uint8_t* a,
                const uint8_t* b, void* y) {
  std::vector<Line> workspace((cpu_matmul_workspace(shape) + sizeof(Line) - 1) / sizeof(Line));
  cpu_matmul_u8(isa, shape, params, units, a, b, y, workspace.data());
}

TEST(Matmul, WorkedNumbers) {
  // Two rows of two heads of one term each; b has three pixels of two heads.
  MatmulShape shape{
      .rows = 2, .heads = 2, .terms = 1, .columns = 3, .a_stride = 2, .b_stride = 2, .y_stride = 6, .transposed = true};
  const uint8_t a[4] = {12, 9, 10, 13}, b[6] = {5, 8, 3, 6, 4, 7};  // less 10: 2, -1, 0, 3; less 4: 1 -1 0; 4 2 3
  uint8_t y[12];
  const MatmulParams params{{10, false}, {4, false}, 0.5f, {.zero_point = 100}};
  matmul_int8_reference(shape, params, a, b, y);
  EXPECT_EQ(Bytes(y, y + 12), (Bytes{101, 99, 100, 98, 99, 98, 100, 100, 100, 106, 103, 104}));  // -1.5, 4.5: to even
}

TEST(Matmul, NotTransposedMixesPixels) {
  // One row of two heads with a factor for each of two pixels of b, which have two channels a head.
  MatmulShape shape{.rows = 1, .heads = 2, .terms = 2, .columns = 2, .a_stride = 4, .b_stride = 4, .y_stride = 4};
  const uint8_t a[4] = {1, 2, 3, 4};
  const int8_t b[8] = {10, 20, 30, 40, -1, -2, -3, -4};
  float y[4];
  matmul_int8_reference(shape, {{0, false}, {0, true}, 1, {.float_output = true}}, a, b, y);
  EXPECT_EQ(std::vector<float>(y, y + 4), (std::vector<float>{8, 16, 78, 104}));
}

/// The largest sums of all, and the longest that float32 could still hold: both are rounded once.
TEST(Matmul, LargestSumsAreExact) {
  for (const int terms : {1, 256, 257, 258, 259, 33025}) {
    for (const bool transposed : {false, true}) {
      MatmulShape shape{.rows = 1, .heads = 1, .terms = terms, .columns = 1, .transposed = transposed};
      shape.a_stride = terms, shape.b_stride = transposed ? terms : 1, shape.y_stride = 1;
      for (const uint8_t zero : {0, 255}) {
        const Bytes a(terms + kCpuReadSlack, 255), b(terms, static_cast<uint8_t>(255 - zero));
        const MatmulParams params{{0, false}, {zero, false}, 1, {.float_output = true}};
        const int64_t sum = int64_t{terms} * 255 * (zero == 0 ? 255 : -255);
        float y = 0;
        matmul_int8_reference(shape, params, a.data(), b.data(), &y);
        EXPECT_EQ(y, static_cast<float>(sum)) << terms;
        for (const CpuIsa isa : available_cpu_isas()) {
          cpu_matmul(isa, shape, params, {0, 1}, a.data(), b.data(), &y);
          EXPECT_EQ(y, static_cast<float>(sum)) << cpu_isa_name(isa) << " " << terms;
        }
      }
    }
  }
}

TEST(Matmul, EveryPathGivesTheDefinitionsBytes) {
  std::mt19937 generator(5);
  const auto between = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); };
  for (const CpuIsa isa : available_cpu_isas()) {
    for (int i = 0; i < 120; ++i) {
      MatmulShape s{.rows = between(1, 30), .heads = between(1, 4)};
      s.terms = i % 9 == 0 ? between(250, 600) : between(1, 70), s.columns = between(1, 50);
      s.transposed = i % 2 == 0;
      s.a_stride = cpu_channel_stride(s.heads * s.terms);
      s.b_stride = cpu_channel_stride(s.heads * (s.transposed ? s.terms : s.columns));
      s.y_stride = s.heads * s.columns + between(0, 2);
      MatmulParams params{{between(0, 255), false}, {between(0, 255), false}, 0, {.zero_point = between(0, 255)}};
      params.y.clamp_min = between(0, 90);
      params.multiplier = static_cast<float>(between(1, 64)) / static_cast<float>(4096 * between(1, 8));
      params.y.float_output = i % 4 == 0;
      Bytes a(static_cast<size_t>(s.rows) * s.a_stride + kCpuReadSlack),
          b(static_cast<size_t>(s.b_rows()) * s.b_stride);
      for (Bytes* codes : {&a, &b})
        for (uint8_t& byte : *codes) byte = static_cast<uint8_t>(i % 7 == 0 ? 255 * between(0, 1) : between(0, 255));
      const size_t element = params.y.float_output ? sizeof(float) : 1;
      Bytes expected(static_cast<size_t>(s.rows) * s.y_stride * element, 77), actual = expected;
      matmul_int8_reference(s, params, a.data(), b.data(), expected.data());
      const int units = cpu_matmul_units(s), half = units / 2;
      cpu_matmul(isa, s, params, {0, half}, a.data(), b.data(), actual.data());
      cpu_matmul(isa, s, params, {half, units}, a.data(), b.data(), actual.data());
      EXPECT_EQ(actual, expected) << cpu_isa_name(isa) << " " << s.rows << " rows, " << s.heads << " heads, " << s.terms
                                  << " terms, " << s.columns << " columns" << (s.transposed ? ", transposed" : "");
    }
  }
}

}  // namespace
}  // namespace octet::kernels
