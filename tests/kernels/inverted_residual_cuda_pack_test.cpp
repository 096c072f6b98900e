// SPDX-License-Identifier: Apache-2.0
// Packed data of an inverted residual is complete: the block is computed from the packed bytes alone, on the CPU.
#include <gtest/gtest.h>

#include <set>

#include "kernels/conv/cuda/family.h"
#include "kernels/groups/inverted_residual/plan.h"
#include "tests/kernels/inverted_residual_case.h"

namespace octet::kernels::testing {
namespace {

/// The sum of a product's fragments with codes in the order that threads hold them.
int fragment_weight(const uint8_t* fragments, int block, int k, int column) {
  const int lane = column * 4 + k % 16 / 4;
  return static_cast<int8_t>(fragments[block / 2 * 512 + lane * 16 + block % 2 * 8 + k / 16 * 4 + k % 4]);
}

// Computes the block from packed data alone, as the kernel does: the weights of every chunk by the positions of codes.
TEST(InvertedResidualCuda, PackedDataHoldsTheWeights) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    const BlockCase c = random_block(random);
    const InvertedResidual block = c.block();
    const InvertedChunk layout(block);
    const std::vector<uint8_t> packed = cuda_inverted_residual_pack(block);
    const int quads = inverted_quads(c.project.shape.out_c), hidden = c.depthwise.shape.in_c;
    const int chunks = ceil_div(hidden, kHiddenChunk);
    ASSERT_EQ(packed.size(), cuda_constants_bytes(quads * 32) + static_cast<size_t>(chunks) * layout.bytes);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const uint8_t* at = packed.data() + cuda_constants_bytes(quads * 32) + static_cast<size_t>(chunk) * layout.bytes;
      const auto channel = [&](int byte) { return chunk * kHiddenChunk + byte; };
      for (int k = 0; k < layout.k_steps * 32; ++k) {
        for (int column = 0; column < 32; ++column) {
          const int out = channel(expanded_byte(column / 8, column % 8)), in_c = c.expand.shape.in_c;
          const int expected = out < hidden && k < in_c ? c.expand.weight[static_cast<size_t>(out) * in_c + k] : 0;
          ASSERT_EQ(fragment_weight(at + k / 32 * 1024, column / 8, k % 32, column % 8), expected) << "expand";
        }
      }
      for (int i = 0; i < 6 * 2 * 32 * 8; ++i) {
        const int column = i % 8, k = i / 8 % 32, pair = i / 256 % 2, row = i / 512 % 3, plane = i / 1536;
        const int byte = hidden_byte(plane, pair, column), tap = k / 8;
        const bool same = hidden_byte(plane, pair, k % 8) == byte;
        const int expected = same && tap < 3 && channel(byte) < hidden
                                 ? c.depthwise.weight[static_cast<size_t>(channel(byte)) * 9 + row * 3 + tap]
                                 : 0;
        ASSERT_EQ(fragment_weight(at + layout.depthwise + (plane * 3 + row) * 512, pair, k, column), expected);
      }
      for (int k = 0; k < 32; ++k) {
        for (int column = 0; column < quads * 32; ++column) {
          const int out = output_channel(column / 8, column % 8), in = channel(narrowed_byte(k));
          const int expected =
              out < c.project.shape.out_c && in < hidden ? c.project.weight[static_cast<size_t>(out) * hidden + in] : 0;
          ASSERT_EQ(fragment_weight(at + layout.project, column / 8, k, column % 8), expected) << "project";
        }
      }
    }
  }
}

TEST(InvertedResidualCuda, BytesOfAPixelArePermutedOneToOne) {
  std::set<int> hidden, expanded, narrowed, out;
  for (int i = 0; i < 32; ++i) {
    hidden.insert(hidden_byte(i / 16, i / 8 % 2, i % 8));
    expanded.insert(expanded_byte(i / 8, i % 8));
    narrowed.insert(narrowed_byte(i));
    out.insert(output_channel(i / 8, i % 8));
  }
  for (const auto& bytes : {hidden, expanded, narrowed, out}) {
    EXPECT_EQ(bytes.size(), 32u);
    EXPECT_EQ(*bytes.rbegin(), 31);
  }
}

}  // namespace
}  // namespace octet::kernels::testing
