// SPDX-License-Identifier: Apache-2.0
// Input quantization on the GPU against the definition, byte for byte.
#include <gtest/gtest.h>

#include <random>

#include "kernels/operators/lookup.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/device_bytes.h"
#include "tests/kernels/random_codes.h"

namespace octet::kernels::testing {
namespace {

TEST(ImageCuda, EveryShapeIsTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(1);
  const ImageShape shapes[] = {{1, 1}, {1, 4}, {2, 4}, {3, 3}, {3, 4}, {4, 4}, {3, 16}, {20, 32}};
  for (const ImageShape& shape : shapes) {
    // Quads of pixels, their remainders, and more than one pass of the whole grid.
    for (const int pixels : {1, 3, 4, 5, 1023, 1024, 1026, 1'200'003}) {
      if (pixels > 2000 && shape.channels != 3) continue;
      const std::vector<uint8_t> tables = random_codes(random, static_cast<size_t>(shape.channels) * 256);
      const std::vector<uint8_t> image = random_codes(random, static_cast<size_t>(pixels) * shape.channels);
      std::vector<uint8_t> expected(static_cast<size_t>(pixels) * shape.out_stride, 77);
      const Stream stream;
      const DeviceBytes device_tables(tables, stream), device_image(image, stream), codes(expected, stream);
      quantize_image(shape, {0, pixels}, tables.data(), image.data(), expected.data());
      cuda_quantize_image(shape, pixels, device_tables.data(), device_image.data(), codes.data(), stream.get());
      EXPECT_TRUE(codes.read(stream) == expected)
          << shape.channels << " channels, stride " << shape.out_stride << ", " << pixels << " pixels";
    }
  }
}

}  // namespace
}  // namespace octet::kernels::testing
