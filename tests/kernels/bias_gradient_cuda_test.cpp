// SPDX-License-Identifier: Apache-2.0
// One pass gives the masked gradient, bit for bit, and the bias' gradient: near the exact sum, and the same each time.
#include "kernels/training/fake_quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/cuda/gpu.h"
#include "tests/kernels/cuda_tensors.h"

namespace octet::kernels {
namespace {

using test::DeviceArray;

struct Case {
  long rows;
  int channels;
};

/// Columns fewer and more than a block has threads, odd channels, one row, more rows than one part takes.
constexpr Case kCases[] = {{1, 1},      {5, 3},     {37, 8},   {1000, 24},  {70001, 10}, {40099, 64},
                           {300, 2048}, {70, 2056}, {9, 4104}, {129, 2051}, {12000, 256}};

struct Gradients {
  std::vector<uint8_t> dx;
  std::vector<float> dbias;
  bool operator==(const Gradients&) const = default;
};

class BiasGradientCuda : public testing::TestWithParam<ValueType> {
 protected:
  Gradients run(const Case& size, size_t offset, bool in_place) const {
    const size_t values = offset * test::bytes_of(GetParam());
    const DeviceArray<uint8_t> in(dy_, values), pass(bits_);
    const DeviceArray<uint8_t> out(std::vector<uint8_t>(dy_.size(), 0xcd), values);
    const DeviceArray<float> parts(
        std::vector<float>(static_cast<size_t>(bias_gradient_parts(size.rows, size.channels)) * size.channels, NAN));
    const DeviceArray<float> dbias(std::vector<float>(size.channels, NAN));
    const DeviceArray<uint8_t>& dx = in_place ? in : out;
    cuda_bias_gradient(
        {in.data(), pass.data(), dx.data(), parts.data(), dbias.data(), size.rows, size.channels, GetParam()}, nullptr);
    return {dx.read(), dbias.read()};
  }

  void fill(const Case& size) {
    const size_t count = static_cast<size_t>(size.rows) * size.channels;
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0.1f, 1);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    dy_ = test::narrowed(values, GetParam());
    bits_.resize((count + 7) / 8);
    for (uint8_t& byte : bits_) byte = static_cast<uint8_t>(random());
  }

  std::vector<uint8_t> dy_, bits_;
};

TEST_P(BiasGradientCuda, MasksAndSums) {
  OCTET_NEEDS_GPU();
  for (const Case& size : kCases) {
    SCOPED_TRACE(std::to_string(size.rows) + " x " + std::to_string(size.channels));
    fill(size);
    std::vector<float> dx = test::widened(dy_, GetParam());
    std::vector<double> sum(size.channels), magnitude(size.channels);
    for (size_t i = 0; i < dx.size(); ++i) {
      if ((bits_[i / 8] >> (i % 8) & 1) == 0) dx[i] = 0;
      sum[i % size.channels] += dx[i];
      magnitude[i % size.channels] += std::fabs(dx[i]);
    }
    const std::vector<uint8_t> want = test::narrowed(dx, GetParam());
    for (const size_t offset : {0u, 1u}) {
      const Gradients got = run(size, offset, false);
      EXPECT_EQ(got.dx, want);
      for (int c = 0; c < size.channels; ++c)
        ASSERT_NEAR(got.dbias[c], sum[c], 2e-6 * magnitude[c] + 1e-12) << c << " at " << offset;
      EXPECT_EQ(run(size, offset, false), got) << "again";
      EXPECT_EQ(run(size, offset, true), got) << "in place";
    }
  }
}

/// With codes the mask is theirs, and another gradient is added first: the same as the bits of that mask and the sum.
TEST_P(BiasGradientCuda, CodesMaskASumOfGradients) {
  OCTET_NEEDS_GPU();
  for (const Case& size : kCases) {
    for (const bool is_signed : {false, true}) {
      SCOPED_TRACE(std::to_string(size.rows) + " x " + std::to_string(size.channels));
      fill(size);
      const int stride = is_signed ? size.channels + 3 : (size.channels + 7) / 8 * 8;
      const int32_t below = is_signed ? -100 : 0, above = is_signed ? 90 : 255;
      std::mt19937 random(7);
      std::vector<uint8_t> codes(static_cast<size_t>(size.rows) * stride);
      for (uint8_t& code : codes)
        code = static_cast<uint8_t>(random() % 3 == 0 ? (random() & 1 ? above : below) : random());
      const std::vector<float> first = test::widened(dy_, GetParam());
      std::vector<float> second(first.rbegin(), first.rend()), sum(first.size());
      bits_.assign(bits_.size(), 0);
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] = first[i] + second[i];
        const uint8_t byte = codes[i / size.channels * stride + i % size.channels];
        const int32_t code = is_signed ? static_cast<int8_t>(byte) : byte;
        bits_[i / 8] |= static_cast<uint8_t>((code > below && code < above) << (i % 8));
      }
      const DeviceArray<uint8_t> in(dy_), other(test::narrowed(second, GetParam())), of_codes(codes);
      const DeviceArray<uint8_t> out(std::vector<uint8_t>(dy_.size(), 0xcd));
      const DeviceArray<float> parts(
          std::vector<float>(static_cast<size_t>(bias_gradient_parts(size.rows, size.channels)) * size.channels, NAN));
      const DeviceArray<float> dbias(std::vector<float>(size.channels, NAN));
      cuda_bias_gradient({.dy = in.data(),
                          .dx = out.data(),
                          .parts = parts.data(),
                          .dbias = dbias.data(),
                          .rows = size.rows,
                          .channels = size.channels,
                          .type = GetParam(),
                          .codes = of_codes.data(),
                          .code_stride = stride,
                          .signed_codes = is_signed,
                          .code_below = below,
                          .code_above = above,
                          .also = other.data()},
                         nullptr);
      dy_ = test::narrowed(sum, GetParam());
      const bool narrow = stride % 8 != 0;  // one value a thread: sums are added in the order of unaligned memory
      const Gradients expected = run(size, narrow ? 1 : 0, false);
      EXPECT_EQ(out.read(), expected.dx);
      EXPECT_EQ(dbias.read(), expected.dbias);
    }
  }
}

TEST_P(BiasGradientCuda, NaNWhereTheBitIsNotSetIsNotSeen) {
  OCTET_NEEDS_GPU();
  const Case size{64, 16};
  fill(size);
  dy_ = test::narrowed(std::vector<float>(1024, NAN), GetParam());
  bits_.assign(bits_.size(), 0);
  EXPECT_EQ(run(size, 0, false).dbias, std::vector<float>(16, 0.0f));
}

TEST_P(BiasGradientCuda, NoRowsSumToZero) {
  OCTET_NEEDS_GPU();
  dy_.clear();
  bits_.clear();
  EXPECT_EQ(run({0, 5}, 0, false).dbias, std::vector<float>(5, 0.0f));
}

INSTANTIATE_TEST_SUITE_P(Types, BiasGradientCuda, testing::ValuesIn(test::kTypes));

}  // namespace
}  // namespace octet::kernels
