// SPDX-License-Identifier: Apache-2.0
// Inverted residuals under test, and how they are held to the reference, byte for byte.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/groups/groups.h"
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

/// Returns a block of odd sizes, not square, with any number of channels and windows that leave images on one side
/// only.
BlockCase random_block(std::mt19937& random);

/// Returns a tile that a GPU with `shared_limit` bytes for a thread block can run, even if it would not be chosen.
CudaInvertedResidual random_tile(const BlockCase& c, int shared_limit, std::mt19937& random);

/// Returns each kind of MobileNetV2's blocks for 224x224 images once, first the one without an expanding convolution.
/// The last block is left out, because no kernel supports its 320 channels.
std::vector<BlockShape> mobilenet_v2_blocks();

/// Returns the output bytes of the reference; lanes behind the channels hold kCanary.
std::vector<uint8_t> run_block_reference(const BlockCase& c);

/// Returns the first difference as a message, or an empty string. The channels must be the reference's, and the bytes
/// that no kernel may write, between round_up(channels, 16) and the stride, must hold kCanary.
std::string block_difference(const BlockCase& c, const std::string& variant, const std::vector<uint8_t>& actual,
                             const std::vector<uint8_t>& expected);

}  // namespace octet::kernels::testing
