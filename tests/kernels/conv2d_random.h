// Random convolutions and how a CPU path is held to the reference, byte for byte.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/conv2d_int8/cpu_conv2d.h"
#include "kernels/elementwise_int8/lookup_int8.h"
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
/// The same; on each axis in one of three cases with less or more behind it.
void infer_output(Conv2dShape& shape, std::mt19937& random);

struct RandomOptions {
  bool extreme = false;  ///< weights +-127 and codes 0 or 255 only
};

/// Fills weights, constants and tensors for case.shape, case.params (zero points, flags) and case.images. Multipliers
/// are chosen so that results spread over and beyond the range of codes.
void fill_random(ConvCase& c, std::mt19937& random, RandomOptions options = {});

/// Sets weights to 0 until of each four input channels no more than two are left, at times fewer.
void keep_two_of_four(ConvCase& c, std::mt19937& random);

/// A random shape, small enough to be fast: kernels to 7, strides, padding, dilation, groups, odd channels, wide
/// strides.
ConvCase random_case(std::mt19937& random);

/// Has the case's codes, which it must write, looked up in a random table.
void draw_lookup(ConvCase& c, std::mt19937& random);

/// Output bytes of the reference; lanes behind the channels hold kCanary.
inline constexpr uint8_t kCanary = 0xA5;
std::vector<uint8_t> run_reference(const ConvCase& c);

/// Output bytes of a CPU path, all tasks in two ranges as two threads would do; out of order, canaries as above.
/// Input, residual, output and workspace each touch a forbidden page on the side of `guard`.
std::vector<uint8_t> run_cpu(const ConvCase& c, CpuIsa isa, Guard guard = Guard::behind);

std::vector<CpuIsa> available_isas();

}  // namespace octet::kernels::testing
