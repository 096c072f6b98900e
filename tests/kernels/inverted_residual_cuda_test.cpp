// The inverted residual in one kernel against the three convolutions of the reference, byte for byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/inverted_residual_int8/cuda/plan.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/conv2d_cuda.h"
#include "tests/kernels/device_bytes.h"
#include "tests/kernels/inverted_residual_case.h"

namespace octet::kernels::testing {
namespace {

int shared_limit(const CudaGpu& gpu) { return (gpu.capability >= 90 ? 227 : 99) * 1024; }

/// Runs every choice twice on the same tensors, whose output held other bytes before.
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

void expect_every_choice_exact(const BlockCase& c) {
  const auto choices = cuda_inverted_residual_choices(c.block(), c.images, this_gpu());
  ASSERT_FALSE(choices.empty()) << c.describe();
  expect_exact(c, choices);
}

TEST(InvertedResidualCuda, BlocksOfMobileNetV2AreExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(1);
  for (const int images : {1, 2, 7}) {
    for (const BlockShape& shape : mobilenet_v2_blocks()) {
      const BlockCase c = make_block(shape, images, Edges::as_networks, random);
      expect_every_choice_exact(c);
      // What a GPU of 8 multiprocessors would take: several turns of few images.
      expect_exact(c, cuda_inverted_residual_choices(c.block(), images, {this_gpu().capability, 8}));
      if (HasFailure()) return;
    }
  }
}

TEST(InvertedResidualCuda, LargeBatchesAreExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(2);
  const std::vector<BlockShape> blocks = mobilenet_v2_blocks();
  for (const size_t block : {5, 8, 10}) {
    expect_every_choice_exact(make_block(blocks[block], 128, Edges::as_networks, random));
  }
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

// The same of blocks that stay: turns that end with a place and that do not, more than there are tiles, several places
// a block, one chunk and several, tiles that leave the picture.
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
              if (inverted_turns_fit(tile, c.block(), c.images, shared_limit(this_gpu()))) tiles.push_back(tile);
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
      tiles.push_back(random_tile(c, shared_limit(this_gpu()), random));
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
    for (const CudaGpu& gpu : {kH200, CudaGpu{86, 84}}) {
      const auto choices = cuda_inverted_residual_choices(c.block(), c.images, gpu);
      EXPECT_GE(choices.size(), 1u) << c.describe();
      EXPECT_LE(choices.size(), 32u);
      std::set<std::string> names;
      for (const CudaInvertedResidual& choice : choices) {
        names.insert(choice.name());
        const InvertedTiles tiles(choice, c.block(), c.images);
        EXPECT_LE(tiles.warps * choice.groups, kMaxWarps) << choice.name();
        EXPECT_LE(InvertedShared(choice, c.block(), c.images).bytes, shared_limit(gpu)) << choice.name();
        EXPECT_LE(choice.parts * choice.groups, tiles.chunks) << choice.name();
        EXPECT_LE(choice.turns, c.images) << choice.name();
        EXPECT_TRUE(choice.turns == 1 || choice.groups * choice.parts == 1) << choice.name();
        EXPECT_LE(choice.parts, gpu.capability >= 90 ? kMaxParts : 1) << choice.name();
      }
      EXPECT_EQ(names.size(), choices.size());
    }
  }
}

// Blocks stay where there are tiles for all of the GPU, and several of one place; a batch of 1 has no such place.
TEST(InvertedResidualCuda, LargeBatchesAreTakenInTurnsToo) {
  std::mt19937 random(6);
  const std::vector<BlockShape> blocks = mobilenet_v2_blocks();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const BlockCase c = make_block(blocks[i], 1, Edges::as_networks, random);
    for (const int images : {1, 128}) {
      int turns = 0, others = 0;
      for (const auto& choice : cuda_inverted_residual_choices(c.block(), images, kH200)) {
        ++(choice.turns > 1 ? turns : others);
      }
      EXPECT_GE(others, images == 1 ? 20 : 12) << "block " << i;
      if (images == 1) {
        EXPECT_EQ(turns, 0) << "block " << i;
      } else if (i < 5) {
        EXPECT_GE(turns, 6) << "block " << i;
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

/// The sum of a product's fragments with codes in the order that threads hold them.
int fragment_weight(const uint8_t* fragments, int block, int k, int column) {
  const int lane = column * 4 + k % 16 / 4;
  return static_cast<int8_t>(fragments[block / 2 * 512 + lane * 16 + block % 2 * 8 + k / 16 * 4 + k % 4]);
}

// The block from packed data alone, as the kernel finds it: weights of every chunk by the bytes that codes lie at.
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
