// SPDX-License-Identifier: Apache-2.0
// Two shares of a batch, whose sums are put together between the passes, are the whole batch as double computes it; and
// each pass gives the same bits each time.
#include "kernels/training/batch_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "tests/cuda/gpu.h"
#include "tests/kernels/cuda_tensors.h"

namespace octet::kernels {
namespace {

using test::DeviceArray;
using Floats = std::vector<float>;

struct Case {
  long rows;  // of a share
  int channels;
  float mean;  // of all channels, whose standard deviation is 2
};

/// One row, odd channels, several columns of blocks, the last of them narrower, rows beyond one part; and means at
/// which a sum of squares in float would lose its digits.
constexpr Case kCases[] = {{1, 8, 0},      {5, 3, 1},     {37, 24, 0},    {1000, 144, 1},   {40099, 64, 50},
                           {300, 2048, 0}, {70, 2056, 1}, {129, 2051, 0}, {12544, 264, 300}};
constexpr float kMomentum = 0.1f, kEpsilon = 1e-5f;

struct Whole {
  std::vector<double> mean, variance, of_dy, of_product;  // by channel; variance divided by the rows
};

Whole sums_of(const std::vector<Floats>& x, const std::vector<Floats>& dy, const Case& size) {
  const double rows = 2.0 * size.rows;
  const auto channels = static_cast<size_t>(size.channels);
  Whole whole{std::vector<double>(channels), std::vector<double>(channels), std::vector<double>(channels),
              std::vector<double>(channels)};
  for (const Floats& share : x)
    for (size_t i = 0; i < share.size(); ++i) whole.mean[i % channels] += share[i] / rows;
  for (size_t s = 0; s < 2; ++s)
    for (size_t i = 0; i < x[s].size(); ++i) {
      const double centred = x[s][i] - whole.mean[i % channels];
      whole.variance[i % channels] += centred * centred / rows;
      whole.of_dy[i % channels] += dy[s][i];
      whole.of_product[i % channels] += dy[s][i] * centred;
    }
  return whole;
}

/// What the passes leave, by share.
struct Passes {
  std::vector<std::vector<uint8_t>> y, dx;
  std::vector<Floats> dweight, dbias, running_mean, running_var;
  bool operator==(const Passes&) const = default;
};

class BatchNormCuda : public testing::TestWithParam<ValueType> {
 protected:
  void fill(const Case& size) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 1);
    const size_t count = static_cast<size_t>(size.rows) * size.channels;
    for (size_t s = 0; s < 2; ++s) {
      Floats x(count), dy(count);
      for (float& value : x) value = size.mean + (s == 0 ? 0.5f : -0.5f) + 2 * normal(random);
      for (float& value : dy) value = 0.25f + normal(random);
      x_[s] = test::narrowed(x, GetParam());
      dy_[s] = test::narrowed(dy, GetParam());
    }
    weight_.resize(size.channels);
    bias_.resize(size.channels);
    for (float& value : weight_) value = 1 + 0.2f * normal(random);
    for (float& value : bias_) value = normal(random);
  }

  /// `offset`: values past an aligned address.
  Passes run(const Case& size, size_t offset) const {
    const auto channels = static_cast<size_t>(size.channels);
    const size_t bytes = offset * test::bytes_of(GetParam()), both = 2 * channels;
    const auto parts_size = static_cast<size_t>(batch_norm_parts(size.rows, size.channels)) * both;
    const DeviceArray<float> weight(weight_), bias(bias_);
    Passes passes;
    Floats moments, sums;
    for (size_t s = 0; s < 2; ++s) {
      const DeviceArray<uint8_t> x(x_[s], bytes);
      const DeviceArray<float> parts(Floats(parts_size, NAN)), mine(Floats(both, NAN));
      cuda_batch_norm_moments(share(size, x), parts.data(), mine.data(), nullptr);
      const Floats read = mine.read();
      moments.insert(moments.end(), read.begin(), read.end());
    }
    const DeviceArray<float> all(moments), kept(Floats(both, NAN));
    for (size_t s = 0; s < 2; ++s) {
      const DeviceArray<uint8_t> x(x_[s], bytes), y(std::vector<uint8_t>(x_[s].size(), 0xcd), bytes);
      const DeviceArray<float> mean(Floats(channels, 0.0f)), variance(Floats(channels, 1.0f));
      cuda_batch_norm_normalize(share(size, x),
                                {all.data(), 2, weight.data(), bias.data(), mean.data(), variance.data(), kMomentum,
                                 kEpsilon, kept.data(), y.data()},
                                nullptr);
      passes.y.push_back(y.read());
      passes.running_mean.push_back(mean.read());
      passes.running_var.push_back(variance.read());
    }
    for (size_t s = 0; s < 2; ++s) {
      const DeviceArray<uint8_t> x(x_[s], bytes), dy(dy_[s], bytes);
      const DeviceArray<float> parts(Floats(parts_size, NAN)), mine(Floats(both, NAN));
      const DeviceArray<float> dweight(Floats(channels, NAN)), dbias(Floats(channels, NAN));
      cuda_batch_norm_gradient_sums(share(size, x), {dy.data(), kept.data(), weight.data()}, parts.data(), mine.data(),
                                    dweight.data(), dbias.data(), nullptr);
      const Floats read = mine.read();
      sums.insert(sums.end(), read.begin(), read.end());
      passes.dweight.push_back(dweight.read());
      passes.dbias.push_back(dbias.read());
    }
    const DeviceArray<float> all_sums(sums);
    for (size_t s = 0; s < 2; ++s) {
      const DeviceArray<uint8_t> x(x_[s], bytes), dy(dy_[s], bytes);
      cuda_batch_norm_gradient(share(size, x), {dy.data(), kept.data(), weight.data()}, all_sums.data(), 2, dy.data(),
                               nullptr);
      passes.dx.push_back(dy.read());
    }
    return passes;
  }

  static BatchNormShare share(const Case& size, const DeviceArray<uint8_t>& x) {
    return {x.data(), size.rows, size.channels, GetParam()};
  }

  /// By what the type rounds, and float's rounding of x where its mean is large.
  static double bound(const Case& size) {
    const double of_type = GetParam() == ValueType::float32 ? 2e-6 : GetParam() == ValueType::float16 ? 1e-3 : 8e-3;
    return of_type + 2e-7 * size.mean;
  }

  std::vector<uint8_t> x_[2], dy_[2];
  Floats weight_, bias_;
};

TEST_P(BatchNormCuda, TwoSharesAreTheWhole) {
  OCTET_NEEDS_GPU();
  for (const Case& size : kCases) {
    SCOPED_TRACE(std::to_string(size.rows) + " x " + std::to_string(size.channels));
    fill(size);
    const std::vector<Floats> x{test::widened(x_[0], GetParam()), test::widened(x_[1], GetParam())};
    const std::vector<Floats> dy{test::widened(dy_[0], GetParam()), test::widened(dy_[1], GetParam())};
    const Whole whole = sums_of(x, dy, size);
    const Passes got = run(size, 0);
    const double rows = 2.0 * size.rows, near = bound(size);
    const auto channels = static_cast<size_t>(size.channels);
    for (size_t s = 0; s < 2; ++s) {
      const Floats y = test::widened(got.y[s], GetParam()), dx = test::widened(got.dx[s], GetParam());
      for (size_t i = 0; i < y.size(); ++i) {
        const size_t c = i % channels;
        const double factor = 1 / std::sqrt(whole.variance[c] + kEpsilon), centred = x[s][i] - whole.mean[c];
        const double want = centred * factor * weight_[c] + bias_[c];
        ASSERT_NEAR(y[i], want, near * (2 + std::fabs(want))) << i << " of share " << s;
        const double want_dx =
            weight_[c] * factor *
            (dy[s][i] - whole.of_dy[c] / rows - centred * factor * factor * whole.of_product[c] / rows);
        ASSERT_NEAR(dx[i], want_dx, near * (2 + std::fabs(want_dx)) * std::max(factor, 1.0)) << i << " of share " << s;
      }
      for (size_t c = 0; c < channels; ++c) {
        ASSERT_NEAR(got.running_mean[s][c], kMomentum * whole.mean[c], 1e-6 * (1 + size.mean)) << c;
        ASSERT_NEAR(got.running_var[s][c], 1 + kMomentum * (whole.variance[c] * rows / (rows - 1) - 1), 1e-5) << c;
      }
    }
    for (size_t c = 0; c < channels; ++c) {
      const double factor = 1 / std::sqrt(whole.variance[c] + kEpsilon), spread = 2e-6 * rows * (1 + 0.1 * size.mean);
      ASSERT_NEAR(got.dbias[0][c] + got.dbias[1][c], whole.of_dy[c], spread) << c;
      ASSERT_NEAR(got.dweight[0][c] + got.dweight[1][c], whole.of_product[c] * factor, spread * std::max(factor, 1.0))
          << c;
    }
    EXPECT_EQ(run(size, 0), got) << "again";
    const Passes shifted = run(size, 1);  // value by value, in another order
    for (size_t s = 0; s < 2; ++s) {
      const Floats a = test::widened(got.y[s], GetParam()), b = test::widened(shifted.y[s], GetParam());
      for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2 * near * (2 + std::fabs(a[i]))) << i;
    }
  }
}

TEST_P(BatchNormCuda, NaNIsNotHidden) {
  OCTET_NEEDS_GPU();
  const Case size{64, 16, 0};
  fill(size);
  Floats x = test::widened(x_[1], GetParam());
  x[5] = NAN;
  x_[1] = test::narrowed(x, GetParam());
  const Passes got = run(size, 0);
  EXPECT_TRUE(std::isnan(test::widened(got.y[0], GetParam())[5]));
  EXPECT_TRUE(std::isnan(got.running_var[0][5]));
  EXPECT_FALSE(std::isnan(got.running_var[0][4]));
}

INSTANTIATE_TEST_SUITE_P(Types, BatchNormCuda, testing::ValuesIn(test::kTypes));

}  // namespace
}  // namespace octet::kernels
