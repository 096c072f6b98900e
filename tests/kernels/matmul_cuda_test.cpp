// SPDX-License-Identifier: Apache-2.0
// Products of images on the GPU against the definition, byte for byte.
#include <gtest/gtest.h>

#include <random>

#include "kernels/operators/attention.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/device_bytes.h"
#include "tests/kernels/random_codes.h"

namespace octet::kernels::testing {
namespace {

TEST(MatmulCuda, IsTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(7);
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    MatmulShape s{.rows = uniform(random, 1, 50), .heads = uniform(random, 1, 4)};
    s.terms = uniform(random, 1, i % 5 == 0 ? 400 : 60), s.columns = uniform(random, 1, 70);
    s.transposed = i % 2 == 0;
    s.a_stride = random_stride(random, s.heads * s.terms);
    s.b_stride = random_stride(random, s.heads * (s.transposed ? s.terms : s.columns));
    s.y_stride = random_stride(random, s.heads * s.columns);
    MatmulParams params{random_input(random), random_input(random), 0, random_output(random)};
    params.y.float_output = uniform(random, 0, 4) == 0;
    params.multiplier = static_cast<float>(uniform(random, 1, 64)) / 16384;  // many ties
    const int images = uniform(random, 1, 5);
    const size_t a_image = static_cast<size_t>(s.rows) * s.a_stride;
    const size_t b_image = static_cast<size_t>(s.b_rows()) * s.b_stride;
    const size_t y_image = static_cast<size_t>(s.rows) * s.y_stride * (params.y.float_output ? sizeof(float) : 1);

    const std::vector<uint8_t> a = random_codes(random, images * a_image), b = random_codes(random, images * b_image);
    std::vector<uint8_t> expected(images * y_image, 77);
    const Stream stream;
    const DeviceBytes device_a(a, stream), device_b(b, stream), y(expected, stream);
    for (int n = 0; n < images; ++n)
      matmul_int8_reference(s, params, a.data() + n * a_image, b.data() + n * b_image, expected.data() + n * y_image);
    cuda_matmul_int8(s, params, {images, device_a.data(), device_b.data(), y.data()}, stream.get());
    EXPECT_TRUE(y.read(stream) == expected) << images << " images, " << s.rows << " rows, " << s.heads << " heads, "
                                            << s.terms << " terms, " << s.columns << " columns";
  }
}

}  // namespace
}  // namespace octet::kernels::testing
