// Inverted residuals under test, and how they are held to the reference, byte for byte.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/inverted_residual_int8/cuda_inverted_residual_int8.h"
#include "tests/kernels/conv2d_random.h"

namespace octet::kernels::testing {

/// A block of a network. hidden: channels between; without expand in_c.
struct BlockShape {
  int in_c = 16, hidden = 96, out_c = 24, height = 14, width = 14, stride = 1;
  bool expand = true, residual = false;
};

/// A block that owns its parameters and tensors. Only the first convolution's x and the last one's residual are filled.
struct BlockCase {
  bool has_expand = true;
  ConvCase expand, depthwise, project;
  int images = 1;

  InvertedResidual block() const;
  const ConvCase& first() const { return has_expand ? expand : depthwise; }
  std::string describe() const;
};

enum class Edges {
  as_networks,  ///< uint8, the hidden ones perhaps int8; ReLU6 behind all but the last
  any,          ///< int8 or uint8, any zero point and clamp
};

/// Fills weights, edges and tensors of a block with random codes.
BlockCase make_block(const BlockShape& shape, int images, Edges edges, std::mt19937& random);

/// Odd sizes, not square, channels of any number, windows that leave pictures on one side only.
BlockCase random_block(std::mt19937& random);

/// A tile for the block, perhaps none that would be chosen, that a GPU with `shared_limit` bytes for a thread block
/// runs.
CudaInvertedResidual random_tile(const BlockCase& c, int shared_limit, std::mt19937& random);

/// The blocks of MobileNetV2 with an expanding convolution, and before them the one without, for 224x224 pictures; each
/// kind once. Not the last: no kernel has its 320 channels.
std::vector<BlockShape> mobilenet_v2_blocks();

/// Output bytes of the reference; lanes behind the channels hold kCanary.
std::vector<uint8_t> run_block_reference(const BlockCase& c);

/// The first difference as a message, empty if there is none: the channels are the reference's, and bytes that no
/// kernel may write, those between round_up(channels, 16) and the stride, hold kCanary.
std::string block_difference(const BlockCase& c, const std::string& variant, const std::vector<uint8_t>& actual,
                             const std::vector<uint8_t>& expected);

}  // namespace octet::kernels::testing
