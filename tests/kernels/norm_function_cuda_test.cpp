// SPDX-License-Identifier: Apache-2.0
// A function behind BatchNorm and its quantizer, in the same passes on the GPU: values are the table's at the codes
// that the passes without a function give, and gradients those of the definition in double for gradients times the
// table's slopes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "kernels/training/norm_quantize.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/cuda_tensors.h"
#include "tests/kernels/plain_norm.h"

namespace octet::kernels {
namespace {

using test::DeviceArray;
using Doubles = std::vector<double>;
using Floats = std::vector<float>;

constexpr float kFunctionEpsilon = 1e-5f;
// Codes whose values either type tells apart.
constexpr QParams kSignedCodes{0.05f, 0, -128, 127}, kFewCodes{0.4f, 3, 0, 15};

enum class Reader { none, rows, images };

struct FunctionCase {
  long images, pixels;
  int channels;
  QParams qparams;
  Clamp activation;
  Reader also;
  long rows() const { return images * pixels; }
};

/// One image, several columns of blocks, the last of them narrower, several parts and several waves of blocks, an
/// image that ends within a part; each with another reader's gradient of either kind.
const FunctionCase kFunctionCases[] = {
    {1, 2, 8, kSignedCodes, kNoClamp, Reader::none},        {3, 5, 24, kFewCodes, kRelu, Reader::rows},
    {7, 49, 144, kSignedCodes, kNoClamp, Reader::images},   {2, 150, 2056, kSignedCodes, kRelu6, Reader::images},
    {40, 1000, 64, kSignedCodes, kNoClamp, Reader::images}, {50, 2600, 96, kFewCodes, kNoClamp, Reader::none},
    {64, 196, 264, kSignedCodes, kNoClamp, Reader::rows}};

struct FunctionPasses {
  std::vector<uint8_t> y, bits, dx;
  Floats dweight, dbias;
  bool operator==(const FunctionPasses&) const = default;
};

class NormFunctionCuda : public testing::TestWithParam<ValueType> {
 protected:
  struct Tensors {
    std::vector<uint8_t> x, dy, also;
    Floats weight, bias;
    FunctionTable table;
  };

  static Tensors random_tensors(const FunctionCase& c) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 1);
    const auto draw = [&](size_t size, float mean, float deviation) {
      Floats values(size);
      for (float& value : values) value = mean + deviation * normal(random);
      return values;
    };
    const auto channels = static_cast<size_t>(c.channels), count = static_cast<size_t>(c.rows()) * channels;
    const size_t of_also = c.also == Reader::images ? static_cast<size_t>(c.images) * channels : count;
    Tensors t{test::narrowed(draw(count, 1, 2), GetParam()),
              test::narrowed(draw(count, 0.25f, 1), GetParam()),
              test::narrowed(draw(of_also, 0, 1), GetParam()),
              draw(channels, 1, 0.2f),
              draw(channels, 0, 1),
              {}};
    for (float& value : t.table.value) value = normal(random);
    for (float& slope : t.table.slope) slope = normal(random);
    t.table.slope[100] = 0;
    return t;
  }

  static FunctionPasses run(const FunctionCase& c, const Tensors& t, bool function) {
    const auto channels = static_cast<size_t>(c.channels);
    const DeviceArray<uint8_t> x(t.x), dy(t.dy), also(t.also), y(std::vector<uint8_t>(t.x.size(), 0xcd)),
        dx(std::vector<uint8_t>(t.x.size(), 0xcd)), bits(std::vector<uint8_t>(c.rows() * c.channels / 8, 0xcd));
    const DeviceArray<float> weight(t.weight), bias(t.bias), mean(Floats(channels, 0)), variance(Floats(channels, 1)),
        parts(Floats(static_cast<size_t>(batch_norm_parts(c.rows(), c.channels)) * 2 * channels, NAN)),
        numbers(Floats(kNormNumbers * channels, NAN)), slopes(Floats(3 * channels, NAN)),
        dweight(Floats(channels, NAN)), dbias(Floats(channels, NAN));
    const DeviceArray<FunctionTable> table({t.table});
    const BatchNormShare share{x.data(), c.rows(), c.channels, GetParam()};
    cuda_norm_statistics({share, weight.data(), bias.data(), mean.data(), variance.data(), 0.1f, kFunctionEpsilon,
                          parts.data(), numbers.data()},
                         nullptr);
    cuda_norm_quantize({.x = share,
                        .numbers = numbers.data(),
                        .activation = c.activation,
                        .qparams = c.qparams,
                        .function = function ? table.data() : nullptr,
                        .y = y.data(),
                        .bits = bits.data()},
                       nullptr);
    cuda_norm_quantize_gradient({.x = share,
                                 .dy = dy.data(),
                                 .also = c.also != Reader::none ? also.data() : nullptr,
                                 .also_rows = c.also == Reader::images ? c.pixels : 1,
                                 .bits = bits.data(),
                                 .numbers = numbers.data(),
                                 .weight = weight.data(),
                                 .function = function ? table.data() : nullptr,
                                 .qparams = c.qparams,
                                 .activation = c.activation,
                                 .parts = parts.data(),
                                 .slopes = slopes.data(),
                                 .dweight = dweight.data(),
                                 .dbias = dbias.data(),
                                 .dx = dx.data()},
                                nullptr);
    return {y.read(), bits.read(), dx.read(), dweight.read(), dbias.read()};
  }

  /// Returns the places in the table of values that are codes'.
  static std::vector<int> places(const FunctionCase& c, const std::vector<uint8_t>& y) {
    std::vector<int> result;
    for (const float value : test::widened(y, GetParam()))
      result.push_back(static_cast<int>(std::rint(value / c.qparams.scale)) + c.qparams.zero_point -
                       c.qparams.quant_min);
    return result;
  }

  static Floats gradient_at_y(const FunctionCase& c, const Tensors& t) {
    Floats gradient = test::widened(t.dy, GetParam());
    if (c.also == Reader::none) return gradient;
    const Floats also = test::widened(t.also, GetParam());
    const auto channels = static_cast<size_t>(c.channels), of_image = static_cast<size_t>(c.pixels) * channels;
    for (size_t i = 0; i < gradient.size(); ++i)
      gradient[i] += c.also == Reader::rows ? also[i] : also[i / of_image * channels + i % channels];
    return test::widened(test::narrowed(gradient, GetParam()), GetParam());
  }
};

TEST_P(NormFunctionCuda, IsTheTableAtTheCodes) {
  OCTET_NEEDS_GPU();
  const double error = GetParam() == ValueType::float16 ? 0x1p-11 : 0x1p-8;
  for (const FunctionCase& c : kFunctionCases) {
    SCOPED_TRACE(std::to_string(c.rows()) + " x " + std::to_string(c.channels));
    const Tensors t = random_tensors(c);
    const FunctionPasses plain = run(c, t, false), got = run(c, t, true);
    EXPECT_EQ(got.bits, plain.bits);
    const std::vector<int> at = places(c, plain.y);
    Floats want(at.size()), gradient = gradient_at_y(c, t);
    for (size_t i = 0; i < at.size(); ++i) {
      want[i] = t.table.value[at[i]];
      const bool passes = (got.bits[i / 8] >> (i % 8) & 1) != 0;
      gradient[i] = passes ? gradient[i] * t.table.slope[at[i]] : 0;
    }
    EXPECT_EQ(got.y, test::narrowed(want, GetParam()));
    const auto channels = static_cast<size_t>(c.channels);
    const Floats of_x = test::widened(t.x, GetParam());
    const Doubles x(of_x.begin(), of_x.end()), dsum(gradient.begin(), gradient.end()),
        weight(t.weight.begin(), t.weight.end()), bias(t.bias.begin(), t.bias.end());
    const PlainNorm norm{c.rows(), c.channels, kFunctionEpsilon, weight.data(), bias.data()};
    Doubles moments(2 * channels), dx(x.size()), dweight(channels), dbias(channels);
    plain_norm_moments(norm, x.data(), moments.data());
    plain_norm_gradients(norm, x.data(), moments.data(), dsum.data(), {dx.data(), dweight.data(), dbias.data()});
    const Floats got_dx = test::widened(got.dx, GetParam());
    for (size_t i = 0; i < dx.size(); ++i) {
      const double factor = 1 / std::sqrt(moments[channels + i % channels] + kFunctionEpsilon);
      ASSERT_NEAR(got_dx[i], dx[i], error * std::fabs(dx[i]) + 2e-5 * std::max(factor, 1.0)) << i;
    }
    for (size_t k = 0; k < channels; ++k) {
      const double factor = 1 / std::sqrt(moments[channels + k] + kFunctionEpsilon);
      ASSERT_NEAR(got.dbias[k], dbias[k], 4e-6 * static_cast<double>(c.rows())) << k;
      ASSERT_NEAR(got.dweight[k], dweight[k], 4e-6 * static_cast<double>(c.rows()) * std::max(factor, 1.0)) << k;
    }
    EXPECT_EQ(run(c, t, true), got) << "again";
  }
}

/// Without a function rows may share a gradient too.
TEST_P(NormFunctionCuda, AGradientForAnImageIsThatForItsRows) {
  OCTET_NEEDS_GPU();
  const FunctionCase shared{6, 100, 72, kSignedCodes, kRelu, Reader::images};
  FunctionCase apart = shared;
  apart.also = Reader::rows;
  for (const bool function : {false, true}) {
    Tensors t = random_tensors(shared);
    const FunctionPasses of_images = run(shared, t, function);
    const Floats also = test::widened(t.also, GetParam());
    Floats rows(static_cast<size_t>(shared.rows()) * shared.channels);
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i] = also[i / (shared.pixels * shared.channels) * shared.channels + i % shared.channels];
    t.also = test::narrowed(rows, GetParam());
    EXPECT_EQ(run(apart, t, function), of_images);
  }
}

TEST_P(NormFunctionCuda, NaNIsNotHidden) {
  OCTET_NEEDS_GPU();
  const FunctionCase c{2, 32, 16, kSignedCodes, kNoClamp, Reader::none};
  Tensors t = random_tensors(c);
  Floats x = test::widened(t.x, GetParam());
  x[5] = NAN;
  t.x = test::narrowed(x, GetParam());
  const Floats dx = test::widened(run(c, t, true).dx, GetParam());
  EXPECT_TRUE(std::isnan(dx[5]));
  EXPECT_FALSE(std::isnan(dx[4]));
}

INSTANTIATE_TEST_SUITE_P(HalfTypes, NormFunctionCuda, testing::Values(ValueType::float16, ValueType::bfloat16));

}  // namespace
}  // namespace octet::kernels
