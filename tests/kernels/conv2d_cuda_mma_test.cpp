// Every tile of the mma family, also where it would not be chosen, against the reference, byte for byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <set>

#include "kernels/conv2d_int8/cuda/mma/mma.h"
#include "kernels/fast_divide.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/conv2d_cuda.h"

namespace octet::kernels::testing {
namespace {

void expect_every_tile_exact(const ConvCase& c, const std::set<int>& splits) {
  ASSERT_TRUE(mma_supports(c.shape, c.params, c.images)) << c.describe();
  const std::vector<uint8_t> expected = run_reference(c);
  for (int tile = 0; tile < static_cast<int>(kMmaTiles.size()); ++tile) {
    const int max_split = mma_max_split(MmaGrid(kMmaTiles[tile], c.shape, c.images));
    for (const int split : splits) {
      if (split > max_split) break;
      const CudaConv2d conv = mma_choice(tile, split);
      expect_exact(c, conv.name, run_family(c, cuda_mma_family(), conv), expected);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(Conv2dCudaMma, EveryTileIsExactOnRandomConvolutions) {
  OCTET_NEEDS_GPU();
  for (unsigned seed = 1; seed <= 60 && !HasFailure(); ++seed) {
    std::mt19937 random(seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_every_tile_exact(random_ungrouped_case(random, seed % 2 == 0), {1, 2, 3, 7});
  }
}

TEST(Conv2dCudaMma, LargestAccumulatorsAreExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(5);
  for (const int zero_point : {0, 255}) {
    expect_every_tile_exact(largest_sums_case(zero_point, /*float_output=*/true, random), {1, 4});
  }
}

TEST(Conv2dCudaMma, LinearLayersWriteFloatLogits) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(6);
  for (const int images : {1, 17}) {
    ConvCase c;
    c.shape = {.in_c = 512, .in_h = 1, .in_w = 1, .out_c = 1000};
    infer_output(c.shape);
    c.images = images;
    c.params.y.float_output = true;
    use_cuda_strides(c);
    fill_random(c, random);
    expect_every_tile_exact(c, {1, 4});
  }
}

// What the kernels rely on, checked without a GPU.
TEST(Conv2dCudaMma, FastDivideDivides) {
  std::mt19937 random(9);
  for (int i = 0; i < 20000; ++i) {
    const int divisor = 1 + static_cast<int>(random() % (i % 2 ? 70 : INT_MAX));
    const int multiple = static_cast<int>(random() % (INT_MAX / divisor + 1u)) * divisor;
    const FastDivide by(divisor);
    for (const int n : {0, multiple, std::max(multiple - 1, 0), INT_MAX}) {
      ASSERT_EQ(by.divide(n), n / divisor) << n << " / " << divisor;
    }
  }
}

TEST(Conv2dCudaMma, TilesPermuteAndSwizzleOneToOne) {
  for (const MmaTile& tile : kMmaTiles) {
    EXPECT_LE(tile.shared_bytes(), 99 * 1024 - 128);
    std::set<int> rows;
    for (int channel = 0; channel < tile.block_n; ++channel) rows.insert(mma_weight_row(tile, channel));
    EXPECT_EQ(static_cast<int>(rows.size()), tile.block_n);
    EXPECT_EQ(*rows.rbegin(), tile.block_n - 1);
    for (int chunk = 0; chunk < tile.row_chunks(); ++chunk) {
      std::set<int> banks;  // eight rows at one chunk: eight groups of four banks
      for (int row = 0; row < 8; ++row) {
        banks.insert((row * tile.block_k / 16 + mma_swizzle(tile.block_k, row, chunk)) % 8);
      }
      EXPECT_EQ(banks.size(), 8u);
    }
  }
}

TEST(Conv2dCudaMma, ChoicesAreAHandfulAndFitTheirWorkspace) {
  std::mt19937 random(8);
  for (int i = 0; i < 200; ++i) {
    const ConvCase c = random_ungrouped_case(random);
    std::vector<CudaConv2d> found;
    mma_choices({c.shape, c.params, c.weights, c.images, kH200}, found);
    EXPECT_GE(found.size(), 1u) << c.describe();
    EXPECT_LE(found.size(), 8u);
    std::set<std::string> names;
    for (const CudaConv2d& conv : found) {
      names.insert(conv.name);
      const MmaGrid grid(kMmaTiles[conv.variant], c.shape, c.images);
      EXPECT_LE(conv.split_k, grid.k_tiles) << conv.name << ": an empty part; " << c.describe();
      EXPECT_EQ(mma_workspace(conv, c.shape, c.images) > 0, conv.split_k > 1);
    }
    EXPECT_EQ(names.size(), found.size());
  }
}

}  // namespace
}  // namespace octet::kernels::testing
