// SPDX-License-Identifier: Apache-2.0
// Softmax on the GPU against the definition, byte for byte.
#include <gtest/gtest.h>

#include <random>

#include "kernels/operators/attention.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/device_bytes.h"
#include "tests/kernels/random_codes.h"

namespace octet::kernels::testing {
namespace {

TEST(SoftmaxCuda, IsTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(7);
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    SoftmaxShape s{.pixels = uniform(random, 1, 60), .groups = uniform(random, 1, 4)};
    s.channels = uniform(random, 1, i % 4 == 0 ? 900 : 50);
    s.x_stride = random_stride(random, s.groups * s.channels);
    s.y_stride = random_stride(random, s.groups * s.channels);
    SoftmaxParams params;
    params.exponential[0] = 32768;
    for (int d = 1; d < 256; ++d) params.exponential[d] = i % 2 == 0 ? uniform(random, 0, 32768) : 32768 / (d + 1);
    params.x_is_signed = (random() & 1) != 0;
    params.multiplier = static_cast<float>(uniform(random, 1, 2048));
    params.y = random_output(random);
    params.y.float_output = uniform(random, 0, 4) == 0;
    const size_t element = params.y.float_output ? sizeof(float) : 1;

    const std::vector<uint8_t> x = random_codes(random, static_cast<size_t>(s.pixels) * s.x_stride);
    std::vector<uint8_t> expected(static_cast<size_t>(s.pixels) * s.y_stride * element, 77);
    const Stream stream;
    const DeviceBytes device_x(x, stream), y(expected, stream);
    softmax_int8_reference(s, params, x.data(), expected.data());
    cuda_softmax_int8(s, params, device_x.data(), y.data(), stream.get());
    EXPECT_TRUE(y.read(stream) == expected) << s.pixels << " pixels, " << s.groups << " groups of " << s.channels;
  }
}

}  // namespace
}  // namespace octet::kernels::testing
