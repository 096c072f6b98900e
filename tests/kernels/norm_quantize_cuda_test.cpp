// SPDX-License-Identifier: Apache-2.0
// BatchNorm and fake quantization in one pass on the GPU, compared with the definition in double: every code is that of
// a sum within the type's error of the definition's, gradients follow from the bits that the forward pass kept, and
// each pass gives the same bits each time.
#include "kernels/training/norm_quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "kernels/training/fake_quantize.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/cuda_tensors.h"
#include "tests/kernels/plain_norm.h"

namespace octet::kernels {
namespace {

using test::DeviceArray;
using Doubles = std::vector<double>;
using Floats = std::vector<float>;

constexpr float kNormMomentum = 0.1f, kNormEpsilon = 1e-5f;
constexpr QParams kAffine{0.03f, 113, 0, 255}, kSymmetric{0.05f, 0, -128, 127}, kFewBits{0.4f, 3, 0, 15};

struct NormCase {
  long rows;
  int channels;
  QParams qparams;
  Clamp activation;
  bool residual, also;
  float mean = 0;  // of all channels, whose standard deviation is 2
};

/// Two rows, several columns of blocks, the last of them narrower, rows beyond one part, several waves of blocks; each
/// with and without residual and a second gradient; and a mean at which a sum of squares in float would lose its
/// digits.
const NormCase kNormCases[] = {
    {2, 8, kAffine, kRelu, true, true},         {37, 24, kSymmetric, kNoClamp, false, true},
    {1000, 144, kFewBits, kRelu6, true, true},  {40099, 64, kAffine, kRelu, true, true, 50},
    {300, 2048, kAffine, kRelu, false, false},  {70, 2056, kSymmetric, kRelu, true, false, 1},
    {129, 2056, kFewBits, kRelu, false, true},  {12544, 264, kAffine, kNoClamp, false, false, 30},
    {130000, 96, kAffine, kRelu, false, false}, {333, 40, kAffine, kRelu, true, true, 1}};

std::string name_of(const NormCase& c) {
  return std::to_string(c.rows) + " x " + std::to_string(c.channels) + (c.residual ? ", residual" : "") +
         (c.also ? ", also" : "");
}

Doubles doubled(const Floats& values) { return {values.begin(), values.end()}; }

/// NormTensors of a case, and what the passes leave of them.
struct NormTensors {
  std::vector<uint8_t> x, residual, dy, also;
  Floats weight, bias;
};
struct NormPasses {
  std::vector<uint8_t> y, bits, dx, masked;
  Floats dweight, dbias, running_mean, running_var;
  bool operator==(const NormPasses&) const = default;
};

class NormQuantizeCuda : public testing::TestWithParam<ValueType> {
 protected:
  static NormTensors random_tensors(const NormCase& c) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 1);
    const size_t count = static_cast<size_t>(c.rows) * c.channels;
    const auto draw = [&](size_t size, float mean, float deviation) {
      Floats values(size);
      for (float& value : values) value = mean + deviation * normal(random);
      return values;
    };
    return {test::narrowed(draw(count, c.mean, 2), GetParam()),
            test::narrowed(draw(count, 0.5f, 1), GetParam()),
            test::narrowed(draw(count, 0.25f, 1), GetParam()),
            test::narrowed(draw(count, 0, 1), GetParam()),
            draw(c.channels, 1, 0.2f),
            draw(c.channels, 0, 1)};
  }

  static NormPasses run(const NormCase& c, const NormTensors& t, EdgeQuantizer* observing = nullptr) {
    const auto channels = static_cast<size_t>(c.channels);
    const auto blank = [&] { return std::vector<uint8_t>(t.x.size(), 0xcd); };
    const DeviceArray<uint8_t> x(t.x), residual(t.residual), y(blank());
    const DeviceArray<uint8_t> bits(std::vector<uint8_t>((c.rows * c.channels + 7) / 8, 0xcd));
    const DeviceArray<float> weight(t.weight), bias(t.bias), mean(Floats(channels, 0.0f)),
        variance(Floats(channels, 1.0f));
    const DeviceArray<float> parts(
        Floats(static_cast<size_t>(batch_norm_parts(c.rows, c.channels)) * 2 * channels, NAN)),
        numbers(Floats(kNormNumbers * channels, NAN));
    const BatchNormShare share{x.data(), c.rows, c.channels, GetParam()};
    cuda_norm_statistics({share, weight.data(), bias.data(), mean.data(), variance.data(), kNormMomentum, kNormEpsilon,
                          parts.data(), numbers.data()},
                         nullptr);
    NormQuantization work{.x = share,
                          .numbers = numbers.data(),
                          .residual = c.residual ? residual.data() : nullptr,
                          .activation = c.activation,
                          .qparams = c.qparams,
                          .y = y.data(),
                          .bits = bits.data()};
    if (observing != nullptr) {
      const DeviceArray<EdgeQuantizer> edge({*observing});
      work.device_qparams = &edge.data()->qparams;
      cuda_norm_observe(work, edge.data(), nullptr);
      cuda_norm_quantize(work, nullptr);
      *observing = edge.read()[0];
    } else {
      cuda_norm_quantize(work, nullptr);
    }
    const DeviceArray<uint8_t> dy(t.dy), also(t.also), dx(blank()), masked(blank());
    const DeviceArray<float> slopes(Floats(3 * channels, NAN)), dweight(Floats(channels, NAN)),
        dbias(Floats(channels, NAN));
    cuda_norm_quantize_gradient({.x = share,
                                 .dy = dy.data(),
                                 .also = c.also ? also.data() : nullptr,
                                 .bits = bits.data(),
                                 .numbers = numbers.data(),
                                 .weight = weight.data(),
                                 .masked = c.residual ? masked.data() : nullptr,
                                 .parts = parts.data(),
                                 .slopes = slopes.data(),
                                 .dweight = dweight.data(),
                                 .dbias = dbias.data(),
                                 .dx = dx.data()},
                                nullptr);
    return {y.read(),       bits.read(),  dx.read(),   masked.read(),
            dweight.read(), dbias.read(), mean.read(), variance.read()};
  }

  static double error() { return GetParam() == ValueType::float16 ? 0x1p-11 : 0x1p-8; }  // half an ulp, of itself

  /// Holds y and bits to those of BatchNorm's results as near to `normal` as float is, rounded to the type; returns how
  /// many had a choice of codes.
  static size_t compare_codes(const NormCase& c, const NormTensors& t, const NormPasses& got, const Doubles& normal,
                              const QParams& q);
  static void compare_gradients(const NormCase& c, const NormTensors& t, const NormPasses& got, const Doubles& x,
                                const PlainNorm& norm, const Doubles& moments);
};

size_t NormQuantizeCuda::compare_codes(const NormCase& c, const NormTensors& t, const NormPasses& got,
                                       const Doubles& normal, const QParams& q) {
  const Floats y = test::widened(got.y, GetParam()), residual = test::widened(t.residual, GetParam());
  const double reach = 1e-5 * (1 + c.mean);
  Floats least(normal.size()), most(normal.size());
  for (size_t i = 0; i < normal.size(); ++i) {
    least[i] = static_cast<float>(normal[i] - reach);
    most[i] = static_cast<float>(normal[i] + reach);
  }
  least = test::widened(test::narrowed(least, GetParam()), GetParam());
  most = test::widened(test::narrowed(most, GetParam()), GetParam());
  size_t choices = 0;
  for (size_t i = 0; i < normal.size(); ++i) {
    const float more = c.residual ? residual[i] : 0;
    Floats ends{least[i] + more, most[i] + more};
    const bool may_pass = c.activation.passes(ends[0]) || c.activation.passes(ends[1]);
    const bool must_pass = c.activation.passes(ends[0]) && c.activation.passes(ends[1]);
    for (float& end : ends) end = c.activation(end);
    uint8_t inside[2];
    fake_quantize(ends.data(), 2, q, ends.data(), inside);
    const Floats rounded = test::widened(test::narrowed(ends, GetParam()), GetParam());
    EXPECT_GE(y[i], rounded[0]) << i << ", normal " << normal[i];
    EXPECT_LE(y[i], rounded[1]) << i << ", normal " << normal[i];
    const bool bit = (got.bits[i / 8] >> (i % 8) & 1) != 0;
    const bool can = may_pass && (inside[0] != 0 || inside[1] != 0),
               must = must_pass && inside[0] != 0 && inside[1] != 0;
    EXPECT_TRUE(bit ? can : !must) << i << ", normal " << normal[i];
    if (testing::Test::HasFailure()) return 0;
    choices += rounded[0] != rounded[1] || inside[0] != inside[1] || may_pass != must_pass ? 1 : 0;
  }
  return choices;
}

void NormQuantizeCuda::compare_gradients(const NormCase& c, const NormTensors& t, const NormPasses& got,
                                         const Doubles& x, const PlainNorm& norm, const Doubles& moments) {
  const auto channels = static_cast<size_t>(c.channels);
  Floats gradient = test::widened(t.dy, GetParam());
  if (c.also) {
    const Floats also = test::widened(t.also, GetParam());
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += also[i];
    gradient = test::widened(test::narrowed(gradient, GetParam()), GetParam());
  }
  for (size_t i = 0; i < gradient.size(); ++i)
    if ((got.bits[i / 8] >> (i % 8) & 1) == 0) gradient[i] = 0;
  if (c.residual) {
    EXPECT_EQ(test::widened(got.masked, GetParam()), gradient);
  }
  const Doubles dsum = doubled(gradient);
  Doubles dx(x.size()), dweight(channels), dbias(channels);
  plain_norm_gradients(norm, x.data(), moments.data(), dsum.data(), {dx.data(), dweight.data(), dbias.data()});
  const Floats got_dx = test::widened(got.dx, GetParam());
  for (size_t i = 0; i < dx.size(); ++i) {
    const double factor = 1 / std::sqrt(moments[channels + i % channels] + kNormEpsilon);
    const double near = error() * std::fabs(dx[i]) + 1e-5 * factor * (1 + c.mean);
    ASSERT_NEAR(got_dx[i], dx[i], near) << i;
  }
  const double spread = 2e-6 * static_cast<double>(c.rows) * (1 + 0.1 * c.mean);
  for (size_t k = 0; k < channels; ++k) {
    const double factor = 1 / std::sqrt(moments[channels + k] + kNormEpsilon);
    ASSERT_NEAR(got.dbias[k], dbias[k], spread) << k;
    ASSERT_NEAR(got.dweight[k], dweight[k], spread * std::max(factor, 1.0)) << k;
  }
}

TEST_P(NormQuantizeCuda, IsTheDefinition) {
  OCTET_NEEDS_GPU();
  for (const NormCase& c : kNormCases) {
    SCOPED_TRACE(name_of(c));
    const NormTensors t = random_tensors(c);
    const NormPasses got = run(c, t);
    const auto channels = static_cast<size_t>(c.channels);
    const Doubles x = doubled(test::widened(t.x, GetParam())), weight = doubled(t.weight), bias = doubled(t.bias);
    const PlainNorm norm{c.rows, c.channels, kNormEpsilon, weight.data(), bias.data()};
    Doubles moments(2 * channels), sum(x.size());
    plain_norm_moments(norm, x.data(), moments.data());
    plain_norm_sum(norm, x.data(), moments.data(), nullptr, sum.data());
    const size_t choices = compare_codes(c, t, got, sum, c.qparams);
    EXPECT_LT(choices, std::max<size_t>(sum.size() / 10, 8)) << "the comparison is too coarse";
    for (size_t k = 0; k < channels; ++k) {
      const double unbiased = moments[channels + k] * static_cast<double>(c.rows) / static_cast<double>(c.rows - 1);
      ASSERT_NEAR(got.running_mean[k], kNormMomentum * moments[k], 1e-6 * (1 + c.mean)) << k;
      ASSERT_NEAR(got.running_var[k], 1 + kNormMomentum * (unbiased - 1), 1e-5) << k;
    }
    compare_gradients(c, t, got, x, norm, moments);
    EXPECT_EQ(run(c, t), got) << "again";
  }
}

/// Where the unit of x is the type's own, its sum is exact and so is every code: BatchNorm with gain 1 and offset 0 of
/// x in {-1, 1} is x but for epsilon, and the residual takes the sums anywhere.
TEST_P(NormQuantizeCuda, CodesOfExactSumsAreTheCpus) {
  OCTET_NEEDS_GPU();
  for (const QParams& q : {kAffine, kSymmetric, kFewBits}) {
    for (const Clamp& clamp : {kNoClamp, kRelu, kRelu6}) {
      constexpr int channels = 8;
      const NormCase c{1200, channels, q, clamp, true, false};
      NormTensors t = random_tensors(c);
      const size_t count = static_cast<size_t>(c.rows) * channels;
      Floats x(count), residual = test::difficult_values(q, count);
      for (float& value : residual)
        if (std::isnan(value)) value = 0;
      residual.resize(count);
      for (size_t i = 0; i < count; ++i) x[i] = i / channels % 2 == 0 ? 1 : -1;
      t.x = test::narrowed(x, GetParam());
      t.residual = test::narrowed(residual, GetParam());
      t.weight.assign(channels, 1);
      t.bias.assign(channels, 0);
      const NormPasses got = run(c, t);
      Floats sum = test::widened(t.residual, GetParam());
      for (size_t i = 0; i < count; ++i) sum[i] += x[i];
      std::vector<bool> passes(count);
      for (size_t i = 0; i < count; ++i) {
        passes[i] = clamp.passes(sum[i]);
        sum[i] = clamp(sum[i]);
      }
      std::vector<uint8_t> mask(count), want_bits((count + 7) / 8);
      fake_quantize(sum.data(), count, q, sum.data(), mask.data());
      for (size_t i = 0; i < count; ++i)
        want_bits[i / 8] |= static_cast<uint8_t>((mask[i] != 0 && passes[i]) << (i % 8));
      EXPECT_EQ(got.y, test::narrowed(sum, GetParam())) << q.scale;
      EXPECT_EQ(got.bits, want_bits) << q.scale;
    }
  }
}

TEST_P(NormQuantizeCuda, ObservedRangesFollowTheSums) {
  OCTET_NEEDS_GPU();
  for (const NormCase& c : kNormCases) {
    if (c.rows * c.channels > 1000000) continue;
    SCOPED_TRACE(name_of(c));
    const NormTensors t = random_tensors(c);
    const bool affine = !c.qparams.is_signed();
    EdgeQuantizer edge{.qparams = c.qparams, .affine = affine ? 1 : 0, .averaging = 0.1};
    const NormPasses got = run(c, t, &edge);
    const Doubles x = doubled(test::widened(t.x, GetParam())), weight = doubled(t.weight), bias = doubled(t.bias);
    const Doubles residual = doubled(test::widened(t.residual, GetParam()));
    const PlainNorm norm{c.rows, c.channels, kNormEpsilon, weight.data(), bias.data()};
    Doubles moments(2 * static_cast<size_t>(c.channels)), sum(x.size());
    plain_norm_moments(norm, x.data(), moments.data());
    plain_norm_sum(norm, x.data(), moments.data(), nullptr, sum.data());
    const Doubles normal = sum;
    if (c.residual) plain_norm_sum(norm, x.data(), moments.data(), residual.data(), sum.data());
    const auto [least, most] = std::minmax_element(sum.begin(), sum.end());
    const double reach = 2 * error() * 15 + 1e-5 * (1 + c.mean);
    EXPECT_NEAR(edge.range.lo, c.activation(static_cast<float>(*least)), reach);
    EXPECT_NEAR(edge.range.hi, c.activation(static_cast<float>(*most)), reach);
    EXPECT_EQ(edge.range.seen, 1);
    EXPECT_EQ(edge.not_finite, 0);
    EXPECT_EQ(edge.blocks.done, 0u);
    EXPECT_EQ(edge.qparams, qparams_of_range(edge.range.lo, edge.range.hi, c.qparams, affine));
    compare_codes(c, t, got, normal, edge.qparams);  // by the range of this batch
    EdgeQuantizer second = edge;
    run(c, t, &second);
    EXPECT_EQ(second.range.seen, 2);
    EXPECT_EQ(second.range.lo, edge.range.lo);
    EXPECT_EQ(second.range.hi, edge.range.hi);
  }
}

TEST_P(NormQuantizeCuda, NaNIsNotHidden) {
  OCTET_NEEDS_GPU();
  const NormCase c{64, 16, kAffine, kRelu, false, false};
  NormTensors t = random_tensors(c);
  Floats x = test::widened(t.x, GetParam());
  x[5] = NAN;
  t.x = test::narrowed(x, GetParam());
  EdgeQuantizer edge{.qparams = c.qparams, .affine = 1, .averaging = 0.1};
  const NormPasses got = run(c, t, &edge);
  EXPECT_EQ(edge.not_finite, 1);
  EXPECT_EQ(edge.qparams, c.qparams);
  EXPECT_TRUE(std::isnan(got.running_var[5]));
  EXPECT_FALSE(std::isnan(got.running_var[4]));
  const Floats dx = test::widened(got.dx, GetParam());
  EXPECT_TRUE(std::isnan(dx[5]));
  EXPECT_FALSE(std::isnan(dx[4]));
  EXPECT_EQ(got.bits[0] >> 5 & 1, 0);
}

/// Needs no GPU: nothing is launched.
TEST(NormQuantizeContract, TakesAlignedChannelsInEightsOnly) {
  const auto tensor = [](uintptr_t address) { return reinterpret_cast<void*>(address); };
  NormQuantization work{.x = {tensor(64), 4, 12, ValueType::float16}, .y = tensor(1024)};
  NormQuantizationGradient gradient{.x = work.x, .dy = tensor(2048), .dx = tensor(4096)};
  EXPECT_THROW(cuda_norm_quantize(work, nullptr), Error) << "12 channels";
  EXPECT_THROW(cuda_norm_quantize_gradient(gradient, nullptr), Error) << "12 channels";
  work.x.channels = gradient.x.channels = 16;
  work.y = tensor(1026);
  gradient.dx = tensor(4098);
  EXPECT_THROW(cuda_norm_quantize(work, nullptr), Error) << "y at an odd address";
  EXPECT_THROW(cuda_norm_quantize_gradient(gradient, nullptr), Error) << "dx at an odd address";
}

INSTANTIATE_TEST_SUITE_P(HalfTypes, NormQuantizeCuda, testing::Values(ValueType::float16, ValueType::bfloat16));

}  // namespace
}  // namespace octet::kernels
