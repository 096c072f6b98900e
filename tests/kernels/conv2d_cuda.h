// Convolutions on the GPU under test: how a variant is held to the reference, byte for byte.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/conv2d_int8/cuda/family.h"
#include "src/cuda/this_gpu.h"
#include "tests/kernels/conv2d_random.h"

namespace octet::kernels::testing {

using octet::this_gpu;

/// GPUs for tests of choices that need none.
inline constexpr CudaGpu kH200{90, 132}, kA100{80, 108};

/// Gives the case int8 edges in place of some of its uint8 ones, the GPU engine's pixel strides half of the time, and a
/// look-up of its codes, if it writes codes, one time in three.
void vary_for_cuda(ConvCase& c, std::mt19937& random);

/// Sets every pixel stride to cuda_channel_stride(); call before fill_random().
void use_cuda_strides(ConvCase& c);

/// A convolution of one group on the GPU's strides, at times on wider ones, as slices of a larger tensor have.
ConvCase random_ungrouped_case(std::mt19937& random, bool uneven_padding = false);

/// The largest sums: 255 * 127 * 4608 is far beyond float's 2^24; float32 output shows every bit that float keeps.
ConvCase largest_sums_case(int zero_point, bool float_output, std::mt19937& random);

/// Output bytes of one variant, run twice on the same workspace, whose head starts with zeros and whose rest does not.
/// Fails the test when bytes behind the output or the zeros of the workspace have changed.
std::vector<uint8_t> run_cuda(const ConvCase& c, const CudaConv2d& conv);

/// The same for a variant of one family, also one that it would not choose.
std::vector<uint8_t> run_family(const ConvCase& c, const CudaConvFamily& family, const CudaConv2d& conv);

/// Fails the test, naming the first difference, unless the channels are the reference's and bytes that no kernel may
/// write hold kCanary: those between round_up(channels, 16) and the stride.
void expect_exact(const ConvCase& c, const std::string& variant, const std::vector<uint8_t>& actual,
                  const std::vector<uint8_t>& expected);

/// Runs the case through everything that cuda_conv2d_choices offers and compares with the reference. Returns how many
/// variants ran.
int expect_every_choice_exact(const ConvCase& c);

}  // namespace octet::kernels::testing
