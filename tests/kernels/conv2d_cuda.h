// SPDX-License-Identifier: Apache-2.0
// Convolutions on the GPU under test: how an alternative is compared with the reference, byte for byte.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/conv/cuda/family.h"
#include "src/cuda/device.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/conv2d_random.h"

// First line of a test of the wgmma family.
#define OCTET_NEEDS_HOPPER() \
  OCTET_NEEDS_GPU();         \
  if (octet::this_gpu().capability != 90) GTEST_SKIP() << "needs compute capability 9.0"

namespace octet::kernels::testing {

using octet::this_gpu;

/// GPUs for tests of choices that need none.
inline constexpr CudaGpu kH200{90, 132}, kA100{80, 108};

/// Gives the case int8 edges in place of some of its uint8 ones, the GPU engine's pixel strides half of the time, and a
/// look-up of its codes, if it writes codes, one time in three.
void vary_for_cuda(ConvCase& c, std::mt19937& random);

/// Sets every pixel stride to cuda_channel_stride(); call before fill_random().
void use_cuda_strides(ConvCase& c);

/// Returns a convolution of one group with the GPU's strides, or sometimes wider ones, as slices of a larger tensor
/// have.
ConvCase random_ungrouped_case(std::mt19937& random, bool uneven_padding = false);

/// Returns a convolution with the largest sums: 255 * 127 * 4608 is far beyond float's 2^24; float32 output shows every
/// bit that float keeps.
ConvCase largest_sums_case(int zero_point, bool float_output, std::mt19937& random);

/// Returns the output bytes of one alternative, run twice on the same workspace, whose head is zeros and whose rest is
/// not. Fails the test if bytes behind the output or the zeros of the workspace have changed.
std::vector<uint8_t> run_cuda(const ConvCase& c, const CudaConv2d& conv);

/// Returns the output bytes of one alternative of a family in the same way, even one that the family would not choose.
std::vector<uint8_t> run_family(const ConvCase& c, const CudaConvFamily& family, const CudaConv2d& conv);

/// Fails the test, naming the first difference, unless the channels are the reference's and bytes that no kernel may
/// write hold kCanary: those between round_up(channels, 16) and the stride.
void expect_exact(const ConvCase& c, const std::string& variant, const std::vector<uint8_t>& actual,
                  const std::vector<uint8_t>& expected);

/// Runs the case through everything that cuda_conv2d_choices offers and compares with the reference. Returns how many
/// variants ran.
int expect_every_choice_exact(const ConvCase& c);

}  // namespace octet::kernels::testing
