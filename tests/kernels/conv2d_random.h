// SPDX-License-Identifier: Apache-2.0
// Random convolutions, and how a CPU path is compared with the reference, byte for byte.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "kernels/operators/lookup.h"
#include "tests/kernels/guarded_bytes.h"

namespace octet::kernels::testing {

/// A convolution that owns its parameters and tensors.
struct ConvCase {
  Conv2dShape shape;
  Conv2dParams params;
  Conv2dWeights weights;  ///< in the vectors below; set by bind()
  std::vector<int8_t> weight;
  std::vector<float> multiplier, bias;
  int images = 1;
  std::vector<uint8_t> x, residual;
  std::optional<LookupTable> lookup;  ///< of the codes that the convolution writes

  void bind();
  std::string describe() const;
};

/// Sets out_h and out_w from the window, with as much padding behind the image as before it.
void infer_output(Conv2dShape& shape);
/// Sets out_h and out_w in the same way, but on each axis in one of three cases with less or more padding behind.
void infer_output(Conv2dShape& shape, std::mt19937& random);

struct RandomOptions {
  bool extreme = false;  ///< weights +-127 and codes 0 or 255 only
};

/// Fills weights, constants and tensors for case.shape, case.params (zero points, flags) and case.images. Multipliers
/// are chosen so that results spread over and beyond the range of codes.
void fill_random(ConvCase& c, std::mt19937& random, RandomOptions options = {});

/// Sets weights to 0 until at most two of each four input channels are left, and sometimes fewer.
void keep_two_of_four(ConvCase& c, std::mt19937& random);

/// Returns a convolution of random shape, small enough to be fast: kernels to 7, strides, padding, dilation, groups,
/// odd channels, wide strides.
ConvCase random_case(std::mt19937& random);

/// Adds a random look-up table for the codes that the case writes.
void draw_lookup(ConvCase& c, std::mt19937& random);

inline constexpr uint8_t kCanary = 0xA5;

/// Returns the output bytes of the reference; lanes behind the channels hold kCanary.
std::vector<uint8_t> run_reference(const ConvCase& c);

/// Returns the output bytes of a CPU path, whose tasks run out of order in two ranges, as two threads would run them.
/// Input, residual, output and workspace each touch a forbidden page on the side of `guard`.
std::vector<uint8_t> run_cpu(const ConvCase& c, CpuIsa isa, Guard guard = Guard::behind);

}  // namespace octet::kernels::testing
