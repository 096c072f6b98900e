// Convolutions on the GPU: every variant gives the reference's bytes.
#include <gtest/gtest.h>

#include "src/common/error.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/conv2d_cuda.h"

namespace octet::kernels::testing {
namespace {

TEST(Conv2dCuda, RandomConvolutionsAreExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(41);
  for (const int images : {1, 3, 7}) {
    for (int i = 0; i < 150 && !HasFailure(); ++i) {
      ConvCase c = random_case(random);
      c.images = images;
      vary_for_cuda(c, random);
      expect_every_choice_exact(c);
    }
  }
}

TEST(Conv2dCuda, DirectIsTheLastChoiceOfEverything) {
  std::mt19937 random(42);
  for (int i = 0; i < 50; ++i) {
    const ConvCase c = random_case(random);
    EXPECT_EQ(cuda_conv2d_choices(c.shape, c.params, c.images, 132).back().name, "direct") << c.describe();
  }
}

TEST(Conv2dCuda, RefusesWhatCannotBe) {
  std::mt19937 random(43);
  ConvCase c = random_case(random);
  c.shape.out_h += 1;
  EXPECT_THROW(cuda_conv2d_choices(c.shape, c.params, c.images, 132), Error);
  c.shape.out_h -= 1;
  c.params.x_zero_point = 256;
  EXPECT_THROW(cuda_conv2d_choices(c.shape, c.params, c.images, 132), Error);
  c.params.x_zero_point = 0;
  EXPECT_THROW(cuda_conv2d_pack({.variant = -1, .name = "none"}, c.shape, c.params), Error);
  EXPECT_THROW(cuda_conv2d_pack({.variant = 1 << 20, .name = "none"}, c.shape, c.params), Error);
}

}  // namespace
}  // namespace octet::kernels::testing
