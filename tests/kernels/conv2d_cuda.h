// Convolutions on the GPU under test: how a variant is held to the reference, byte for byte.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/conv2d_int8/cuda_conv2d.h"
#include "tests/kernels/conv2d_random.h"

namespace octet::kernels::testing {

/// Gives the case int8 edges in place of some of its uint8 ones, and the GPU engine's pixel strides half of the time.
void vary_for_cuda(ConvCase& c, std::mt19937& random);

/// Sets every pixel stride to cuda_channel_stride(); call before fill_random().
void use_cuda_strides(ConvCase& c);

/// Output bytes of one variant, run twice on the same workspace; lanes behind the channels hold kCanary. Fails the test
/// when bytes behind the output or the zeros of the workspace have changed.
std::vector<uint8_t> run_cuda(const ConvCase& c, const CudaConv2d& conv);

/// Runs the case through everything that cuda_conv2d_choices offers and compares with the reference. Returns how many
/// variants ran.
int expect_every_choice_exact(const ConvCase& c);

}  // namespace octet::kernels::testing
