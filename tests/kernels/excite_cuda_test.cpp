// SPDX-License-Identifier: Apache-2.0
// Squeeze-and-excite in training on the GPU, compared with plain loops: codes and the gradient of x bit for bit, sums
// with those in double.
#include "kernels/training/excite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "kernels/training/fake_quantize.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/cuda_tensors.h"

namespace octet::kernels {
namespace {

using test::DeviceArray;
using Floats = std::vector<float>;

struct ExciteCase {
  long images;
  int pixels, channels;
  QParams qparams;
  Clamp activation;
};

/// One pixel, fewer pixels than lanes, several parts of an image, the last of them shorter, several columns of blocks,
/// more images than blocks are wanted.
const ExciteCase kExciteCases[] = {
    {1, 1, 8, {0.03f, 113, 0, 255}, kNoClamp},      {3, 5, 24, {0.05f, 0, -128, 127}, kRelu},
    {2, 12544, 32, {0.03f, 113, 0, 255}, kNoClamp}, {2, 3137, 96, {0.02f, 60, 0, 255}, kNoClamp},
    {5, 49, 1152, {0.03f, 20, 0, 255}, kRelu6},     {4, 196, 2056, {0.4f, 3, 0, 15}, kNoClamp},
    {1100, 49, 40, {0.03f, 113, 0, 255}, kNoClamp}};

class ExciteCuda : public testing::TestWithParam<ValueType> {
 protected:
  static std::vector<uint8_t> draw(size_t count, float mean, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(mean, 1);
    Floats values(count);
    for (float& value : values) value = normal(random);
    return test::narrowed(values, GetParam());
  }
  static std::vector<uint8_t> blank(size_t count) {
    return std::vector<uint8_t>(count * test::bytes_of(GetParam()), 0xcd);
  }
  static ImageChannels shape_of(const ExciteCase& c) { return {c.images, c.pixels, c.channels, GetParam()}; }
  static DeviceArray<float> scratch(const ExciteCase& c) {
    return DeviceArray<float>(Floats(static_cast<size_t>(image_parts(shape_of(c))) * c.channels, NAN));
  }
  static double error() { return GetParam() == ValueType::float16 ? 0x1p-11 : 0x1p-8; }
};

TEST_P(ExciteCuda, MeansAreTheDefinitions) {
  OCTET_NEEDS_GPU();
  for (const ExciteCase& c : kExciteCases) {
    SCOPED_TRACE(std::to_string(c.pixels) + " x " + std::to_string(c.channels));
    const auto channels = static_cast<size_t>(c.channels), of_image = channels * c.pixels;
    const std::vector<uint8_t> x = draw(c.images * of_image, 0.5f, 1);
    const DeviceArray<uint8_t> on_device(x), y(blank(c.images * channels));
    const auto run = [&] {
      const DeviceArray<float> parts = scratch(c);
      cuda_image_means(shape_of(c), on_device.data(), parts.data(), y.data(), nullptr);
      return y.read();
    };
    const std::vector<uint8_t> first = run();
    const Floats got = test::widened(first, GetParam()), values = test::widened(x, GetParam());
    std::vector<double> want(c.images * channels);
    for (size_t i = 0; i < values.size(); ++i) want[i / of_image * channels + i % channels] += values[i] / c.pixels;
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], error() * std::fabs(want[i]) + 1e-5) << i;
    EXPECT_EQ(run(), first) << "again";
  }
}

TEST_P(ExciteCuda, ProductsAndTheirGradientsAreTheDefinitions) {
  OCTET_NEEDS_GPU();
  for (const ExciteCase& c : kExciteCases) {
    SCOPED_TRACE(std::to_string(c.pixels) + " x " + std::to_string(c.channels));
    const auto channels = static_cast<size_t>(c.channels), of_image = channels * c.pixels, count = c.images * of_image;
    const std::vector<uint8_t> x = draw(count, 0.5f, 1), factor = draw(c.images * channels, 0.5f, 2),
                               dy = draw(count, 0.1f, 3);
    const DeviceArray<uint8_t> of_x(x), of_factor(factor), of_dy(dy), y(blank(count)), dx(blank(count)),
        dfactor(blank(c.images * channels)), bits(std::vector<uint8_t>(count / 8, 0xcd));
    const DeviceArray<float> parts = scratch(c);
    cuda_excite_quantize({.shape = shape_of(c),
                          .x = of_x.data(),
                          .factor = of_factor.data(),
                          .activation = c.activation,
                          .qparams = c.qparams,
                          .y = y.data(),
                          .bits = bits.data()},
                         nullptr);
    cuda_excite_gradient({.shape = shape_of(c),
                          .dy = of_dy.data(),
                          .x = of_x.data(),
                          .factor = of_factor.data(),
                          .bits = bits.data(),
                          .parts = parts.data(),
                          .dx = dx.data(),
                          .dfactor = dfactor.data()},
                         nullptr);
    const Floats values = test::widened(x, GetParam()), factors = test::widened(factor, GetParam());
    Floats product(count), gradient = test::widened(dy, GetParam());
    const auto at = [&](size_t i) { return i / of_image * channels + i % channels; };
    for (size_t i = 0; i < count; ++i) product[i] = values[i] * factors[at(i)];
    product = test::widened(test::narrowed(product, GetParam()), GetParam());
    std::vector<uint8_t> inside(count), want_bits(count / 8);
    std::vector<bool> passes(count);
    for (size_t i = 0; i < count; ++i) {
      passes[i] = c.activation.passes(product[i]);
      product[i] = c.activation(product[i]);
    }
    fake_quantize(product.data(), count, c.qparams, product.data(), inside.data());
    std::vector<double> want(c.images * channels), magnitude(want.size());
    for (size_t i = 0; i < count; ++i) {
      const bool pass = passes[i] && inside[i] != 0;
      want_bits[i / 8] |= static_cast<uint8_t>(pass << (i % 8));
      if (!pass) gradient[i] = 0;
      want[at(i)] += static_cast<double>(gradient[i]) * values[i];
      magnitude[at(i)] += std::fabs(static_cast<double>(gradient[i]) * values[i]);
      gradient[i] *= factors[at(i)];
    }
    EXPECT_EQ(y.read(), test::narrowed(product, GetParam()));
    EXPECT_EQ(bits.read(), want_bits);
    EXPECT_EQ(test::widened(dx.read(), GetParam()), test::widened(test::narrowed(gradient, GetParam()), GetParam()));
    const Floats got = test::widened(dfactor.read(), GetParam());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], error() * std::fabs(want[i]) + 1e-6 * magnitude[i] + 1e-6) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(HalfTypes, ExciteCuda, testing::Values(ValueType::float16, ValueType::bfloat16));

}  // namespace
}  // namespace octet::kernels
