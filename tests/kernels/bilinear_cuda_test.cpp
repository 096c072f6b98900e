// SPDX-License-Identifier: Apache-2.0
// Bilinear resizing on the GPU against the definition, byte for byte.
#include <gtest/gtest.h>

#include <random>

#include "kernels/operators/bilinear.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/device_bytes.h"
#include "tests/kernels/random_codes.h"

namespace octet::kernels::testing {
namespace {

TEST(BilinearCuda, IsTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(7);
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    BilinearShape s;
    s.channels = uniform(random, 0, 2) == 0 ? 16 * uniform(random, 1, 12) : uniform(random, 1, 200);
    s.in_h = uniform(random, 1, 9), s.in_w = uniform(random, 1, 9);
    s.factor_h = uniform(random, 1, 5), s.factor_w = uniform(random, 1, 5);
    s.in_stride = random_stride(random, s.channels), s.out_stride = random_stride(random, s.channels);
    BilinearParams params{random_input(random), 0, random_output(random)};
    params.y.float_output = uniform(random, 0, 4) == 0;
    // Powers of two make many ties.
    params.multiplier = random() & 1 ? 0.125f / (s.factor_h * s.factor_w) * uniform(random, 1, 4) : 1.0f / 16;
    const int images = uniform(random, 1, 5);
    const size_t x_image = static_cast<size_t>(s.in_h) * s.in_w * s.in_stride;
    const size_t y_image =
        static_cast<size_t>(s.out_h()) * s.out_w() * s.out_stride * (params.y.float_output ? sizeof(float) : 1);

    const std::vector<uint8_t> x = random_codes(random, images * x_image);
    std::vector<uint8_t> expected(images * y_image, 77);
    const Stream stream;
    const DeviceBytes device_x(x, stream), y(expected, stream);
    for (int n = 0; n < images; ++n)
      bilinear_int8_reference(s, params, x.data() + n * x_image, expected.data() + n * y_image);
    cuda_bilinear_int8(s, params, {images, device_x.data(), y.data()}, stream.get());
    EXPECT_TRUE(y.read(stream) == expected) << images << " images, " << s.channels << " channels, " << s.in_h << "x"
                                            << s.in_w << " times " << s.factor_h << "x" << s.factor_w;
  }
}

}  // namespace
}  // namespace octet::kernels::testing
