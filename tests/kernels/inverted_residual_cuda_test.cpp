// SPDX-License-Identifier: Apache-2.0
// The inverted residual in one kernel against the three convolutions of the reference, byte for byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <set>

#include "kernels/core/cuda.h"
#include "kernels/groups/inverted_residual/plan.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/conv2d_cuda.h"
#include "tests/kernels/device_bytes.h"
#include "tests/kernels/inverted_residual_case.h"

namespace octet::kernels::testing {
namespace {

/// Runs every alternative twice on the same tensors, whose output held other bytes before.
void expect_exact(const BlockCase& c, const std::vector<CudaInvertedResidual>& choices) {
  const Stream stream;
  const InvertedResidual block = c.block();
  const std::vector<uint8_t> expected = run_block_reference(c);
  const DeviceBytes packed(cuda_inverted_residual_pack(block), stream), x(c.first().x, stream);
  const DeviceBytes residual(c.project.residual, stream);
  for (const CudaInvertedResidual& choice : choices) {
    const DeviceBytes y(std::vector<uint8_t>(expected.size(), kCanary), stream, kCanary);
    const CudaInvertedResidualData data{.images = c.images,
                                        .packed = packed.data(),
                                        .x = x.data(),
                                        .residual = c.project.params.has_residual ? residual.data() : nullptr,
                                        .y = y.data()};
    for (int run = 0; run < 2; ++run) cuda_inverted_residual(choice, block, data, stream.get());
    ASSERT_EQ(block_difference(c, choice.name(), y.read(stream), expected), "");
  }
}

int most_turns(const std::vector<CudaInvertedResidual>& choices) {
  int most = 0;
  for (const CudaInvertedResidual& choice : choices) most = std::max(most, choice.turns);
  return most;
}

void expect_every_choice_exact(const BlockCase& c) {
  const auto choices = cuda_inverted_residual_choices(c.block(), c.images, this_gpu());
  ASSERT_FALSE(choices.empty()) << c.describe();
  expect_exact(c, choices);
}

TEST(InvertedResidualCuda, BlocksOfMobileNetV2AreExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(1);
  int turns = 0;
  for (const int images : {1, 2, 7}) {
    for (const BlockShape& shape : mobilenet_v2_blocks()) {
      const BlockCase c = make_block(shape, images, Edges::as_networks, random);
      expect_every_choice_exact(c);
      // What a GPU of 8 multiprocessors would take: turns of few images, too.
      const auto choices = cuda_inverted_residual_choices(c.block(), images, {this_gpu().capability, 8});
      expect_exact(c, choices);
      if (HasFailure()) return;
      turns = std::max(turns, most_turns(choices));
    }
  }
  EXPECT_EQ(turns, 7);  // one place of all images
}

// The reference takes 16 s of one core for all, 4 s for the second block and for the third, 2 s or less for the others.
TEST(InvertedResidualCuda, LargeBatchesAreExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(2);
  int turns = 0;
  for (const BlockShape& shape : mobilenet_v2_blocks()) {
    const BlockCase c = make_block(shape, 128, Edges::as_networks, random);
    expect_every_choice_exact(c);
    if (HasFailure()) return;
    turns = std::max(turns, most_turns(cuda_inverted_residual_choices(c.block(), c.images, this_gpu())));
  }
  EXPECT_GT(turns, 2);
}

// Each kernel there is, on little work: for sanitizers.
TEST(InvertedResidualCuda, EveryKernelIsExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(4);
  for (const int out_c : {24, 64, 96, 160}) {
    for (const int stride : {1, 2}) {
      for (int rows = 1; rows <= inverted_max_rows(inverted_quads(out_c)); rows *= 2) {
        for (const Edges edges : {Edges::as_networks, Edges::any}) {
          const BlockShape shape{.hidden = 72, .out_c = out_c, .height = 9, .width = 7, .stride = stride};
          const BlockCase c = make_block(shape, 2, edges, random);
          const int whole = ceil_div(c.project.shape.out_h, rows), width = c.project.shape.out_w;
          const int parts = this_gpu().capability >= 90 ? 3 : 1;
          expect_exact(c, {{.rows = rows, .strips = 1, .width = 3, .groups = 2},
                           {.rows = rows, .strips = whole, .width = width, .images = 2, .parts = parts}});
          if (HasFailure()) return;
        }
      }
    }
  }
}

// Each kernel in turns, on little work: turns that end with a place and that do not, more turns than tiles, several
// places per block, one chunk and several, tiles that leave the image.
TEST(InvertedResidualCuda, EveryKernelOfTurnsIsExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(5);
  int ran = 0;
  for (const int out_c : {24, 64}) {
    for (const int stride : {1, 2}) {
      for (int rows = 1; rows <= inverted_max_rows(inverted_quads(out_c)); rows *= 2) {
        for (const bool expand : {true, false}) {
          for (const Edges edges : {Edges::as_networks, Edges::any}) {
            const int hidden = edges == Edges::any ? 72 : 24;
            const BlockShape shape{.in_c = !expand || edges == Edges::as_networks ? hidden : 40,
                                   .hidden = hidden,
                                   .out_c = out_c,
                                   .height = 11,
                                   .width = 9,
                                   .stride = stride,
                                   .expand = expand,
                                   .residual = true};
            const BlockCase c = make_block(shape, 5, edges, random);
            std::vector<CudaInvertedResidual> tiles;
            for (const int turns : {2, 3, 5, 7, 100}) {
              const CudaInvertedResidual tile{.rows = rows,
                                              .strips = 1,
                                              .width = turns % 2 ? 4 : 9,
                                              .images = inverted_turn_images(expand),
                                              .turns = turns};
              if (inverted_turns_fit(tile, c.block(), c.images, cuda_shared_limit(this_gpu().capability)))
                tiles.push_back(tile);
            }
            ran += static_cast<int>(tiles.size());
            expect_exact(c, tiles);
            if (HasFailure()) return;
          }
        }
      }
    }
  }
  EXPECT_EQ(ran, 2 * 5 * 4 * 5);  // none of the 2 * (3 + 2) kernels left out
}

TEST(InvertedResidualCuda, RandomBlocksAreExact) {
  OCTET_NEEDS_GPU();
  for (unsigned seed = 1; seed <= 400 && !HasFailure(); ++seed) {
    std::mt19937 random(seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    const BlockCase c = random_block(random);
    std::vector<CudaInvertedResidual> tiles = cuda_inverted_residual_choices(c.block(), c.images, this_gpu());
    ASSERT_FALSE(tiles.empty());
    tiles.resize(1);
    for (int i = 0; i < 4; ++i) {
      tiles.push_back(random_tile(c, cuda_shared_limit(this_gpu().capability), random));
      if (this_gpu().capability < 90) tiles.back().parts = 1;
    }
    expect_exact(c, tiles);
  }
}

// What needs no GPU.
TEST(InvertedResidualCuda, ChoicesAreAHandfulAndFit) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const BlockCase c = random_block(random);
    for (const CudaGpu& gpu : {kH200, CudaGpu{86, 84}, CudaGpu{87, 16}, CudaGpu{120, 170}}) {
      const auto choices = cuda_inverted_residual_choices(c.block(), c.images, gpu);
      EXPECT_GE(choices.size(), 1u) << c.describe();
      EXPECT_LE(choices.size(), 32u);
      std::set<std::string> names;
      for (const CudaInvertedResidual& choice : choices) {
        names.insert(choice.name());
        const InvertedTiles tiles(choice, c.block(), c.images);
        EXPECT_LE(tiles.warps * choice.groups, kMaxWarps) << choice.name();
        EXPECT_LE(InvertedShared(choice, c.block(), c.images).bytes, cuda_shared_limit(gpu.capability))
            << choice.name();
        EXPECT_LE(choice.parts * choice.groups, tiles.chunks) << choice.name();
        EXPECT_LE(choice.turns, c.images) << choice.name();
        EXPECT_TRUE(choice.turns == 1 || choice.groups * choice.parts == 1) << choice.name();
        EXPECT_LE(choice.parts, gpu.capability >= 90 ? kMaxParts : 1) << choice.name();
      }
      EXPECT_EQ(names.size(), choices.size());
    }
  }
}

// Turns are offered if there are tiles for the whole GPU and several at one place; a batch of 1 has no such place.
TEST(InvertedResidualCuda, LargeBatchesAreTakenInTurnsToo) {
  std::mt19937 random(6);
  const std::vector<BlockShape> blocks = mobilenet_v2_blocks();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const BlockCase c = make_block(blocks[i], 1, Edges::as_networks, random);
    for (const int images : {1, 128}) {
      int turns = 0, others = 0;
      const auto choices = cuda_inverted_residual_choices(c.block(), images, kH200);
      for (const auto& choice : choices) ++(choice.turns > 1 ? turns : others);
      EXPECT_GE(others, images == 1 ? 20 : 12) << "block " << i;
      if (images == 1) {
        EXPECT_EQ(turns, 0) << "block " << i;
      } else if (i < 5) {
        EXPECT_GE(turns, 6) << "block " << i;
        EXPECT_GT(most_turns(choices), 2) << "block " << i;
      }
    }
  }
}

TEST(InvertedResidualCuda, OtherBlocksHaveNoChoice) {
  const auto choices = [](const BlockCase& c) { return cuda_inverted_residual_choices(c.block(), 1, kH200).size(); };
  std::mt19937 random(3);
  const BlockCase good = make_block({}, 1, Edges::as_networks, random);
  EXPECT_GT(choices(good), 0u);
  EXPECT_EQ(cuda_inverted_residual_choices(good.block(), 1, {75, 40}).size(), 0u);
  BlockCase c = good;
  c.project.params.y.float_output = true;
  EXPECT_EQ(choices(c), 0u);
  c = good, c.project.shape.out_stride = 28;
  EXPECT_EQ(choices(c), 0u);
  c = good, c.depthwise.multiplier[5] = 0x1p-90f, c.depthwise.bind();
  EXPECT_EQ(choices(c), 0u);
  EXPECT_EQ(choices(make_block({.out_c = 161}, 1, Edges::as_networks, random)), 0u);
  c = good, c.depthwise.params.x.zero_point = 1;
  EXPECT_THROW(choices(c), std::exception);
}

}  // namespace
}  // namespace octet::kernels::testing
