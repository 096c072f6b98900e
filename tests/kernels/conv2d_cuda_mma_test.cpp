// SPDX-License-Identifier: Apache-2.0
// Every tile of the mma family, even if it would not be chosen, against the reference, byte for byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <set>

#include "kernels/conv/cuda/mma/mma.h"
#include "kernels/core/divide.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/conv2d_cuda.h"
#include "tests/kernels/device_bytes.h"

namespace octet::kernels::testing {
namespace {

void expect_every_tile_exact(const ConvCase& c, const std::set<int>& splits) {
  ASSERT_TRUE(mma_supports(c.shape, c.params, c.images)) << c.describe();
  const std::vector<uint8_t> expected = run_reference(c);
  const bool has_clusters = this_gpu().capability >= 90;
  for (int tile = 0; tile < static_cast<int>(kMmaTiles.size()); ++tile) {
    const MmaGrid grid(kMmaTiles[tile], c.shape, c.images);
    for (const int split : splits) {
      std::vector<CudaConv2d> choices;
      if (split <= mma_max_split(grid)) choices.push_back(mma_choice(tile, split));
      if (has_clusters && split > 1 && split <= grid.k_tiles && mma_cluster_fits(kMmaTiles[tile], split)) {
        choices.push_back(mma_choice(tile, split, /*in_cluster=*/true));
      }
      for (const CudaConv2d& conv : choices) {
        expect_exact(c, conv.name, run_family(c, cuda_mma_family(), conv), expected);
        if (::testing::Test::HasFailure()) return;
      }
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

// Of four convolutions in a row, the third runs concurrently with the second, which is slow, and the fourth adds what
// the second writes.
TEST(Conv2dCudaMma, OneRunsBesideTheOneBeforeIt) {
  OCTET_NEEDS_GPU();
  constexpr int kSlow = 0, kQuick = 12, kTimes = 30;  // tiles
  std::mt19937 random(7);
  const auto convolution = [&](Conv2dShape shape, const std::vector<uint8_t>& x, const std::vector<uint8_t>& added) {
    ConvCase c;
    c.shape = shape;
    infer_output(c.shape);
    use_cuda_strides(c);
    c.params.has_residual = !added.empty();
    fill_random(c, random);
    if (!x.empty()) c.x = x;
    if (!added.empty()) c.residual = added;
    return c;
  };
  const Conv2dShape wide = {
      // four blocks of a hundred steps
      .in_c = 128, .in_h = 28, .in_w = 28, .out_c = 128, .kernel_h = 7, .kernel_w = 7, .pad_h = 3, .pad_w = 3};
  const ConvCase first = convolution(wide, {}, {});
  const std::vector<uint8_t> shared = run_reference(first);
  const ConvCase slow = convolution(wide, shared, {});
  const ConvCase beside =
      convolution({.in_c = 128, .in_h = 28, .in_w = 28, .out_c = 32, .stride_h = 4, .stride_w = 4}, shared, {});
  const ConvCase last = convolution({.in_c = 128, .in_h = 28, .in_w = 28, .out_c = 128}, shared, run_reference(slow));

  const Stream stream;
  const std::vector<const ConvCase*> cases = {&first, &slow, &beside, &last};
  const std::vector<CudaConv2d> kernels = {mma_choice(kSlow, 1), mma_choice(kSlow, 1), mma_choice(kQuick, 1),
                                           mma_choice(kQuick, 1)};
  std::vector<std::vector<uint8_t>> expected;
  std::vector<DeviceBytes> packed;
  for (size_t i = 0; i < cases.size(); ++i) {
    const ConvCase& c = *cases[i];
    expected.push_back(run_reference(c));
    packed.emplace_back(mma_pack(kernels[i], c.shape, c.params, c.weights), stream);
  }
  const DeviceBytes x(first.x, stream);
  for (int time = 0; time < kTimes && !HasFailure(); ++time) {
    std::vector<DeviceBytes> y;
    for (const auto& bytes : expected) y.emplace_back(std::vector<uint8_t>(bytes.size(), kCanary), stream, kCanary);
    const uint8_t* inputs[] = {x.data(), y[0].data(), y[0].data(), y[0].data()};
    for (size_t i = 0; i < cases.size(); ++i) {
      const CudaConv2dData data{.images = 1,
                                .packed = packed[i].data(),
                                .x = inputs[i],
                                .residual = i == 3 ? y[1].data() : nullptr,
                                .y = y[i].data(),
                                .beside = i == 2};
      cuda_mma_family().launch(kernels[i], cases[i]->shape, cases[i]->params, data, stream.get());
    }
    for (size_t i = 0; i < cases.size(); ++i) {
      expect_exact(*cases[i], "convolution " + std::to_string(i), y[i].read(stream), expected[i]);
    }
  }
}

// What the kernels rely on, checked without a GPU.
TEST(Conv2dCudaMma, TapsInsideAreThoseInTheImage) {
  for (int dilation = 1; dilation <= 7; ++dilation) {
    const FastDivide by_dilation(static_cast<uint32_t>(dilation));
    for (int kernel = 1; kernel <= kMmaMaxKernel; ++kernel) {
      for (int size = 1; size <= 20; ++size) {
        for (int first = -110; first <= 30; ++first) {
          uint32_t inside = 0;
          for (int r = 0; r < kernel; ++r) {
            const int place = first + r * dilation;
            if (place >= 0 && place < size) inside |= 1u << r;
          }
          ASSERT_EQ(taps_inside(first, size, kernel, by_dilation), inside)
              << first << " of " << size << ", " << kernel << " taps " << dilation << " apart";
        }
      }
    }
  }
}

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
    EXPECT_LE(tile.shared_bytes(), kMmaSharedBytes);
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

// What a block can get on 8.6, 8.9 and 12.x, the least of all GPUs; less the static shared memory of a block.
TEST(Conv2dCudaMma, TilesFitTheSharedMemoryOfEveryGpu) {
  for (const int capability : {80, 86, 87, 89, 90, 100, 120})
    EXPECT_LE(kMmaSharedBytes + 128, cuda_shared_limit(capability)) << capability;
  for (const MmaTile& tile : kMmaTiles) EXPECT_LE(tile.shared_bytes(), kMmaSharedBytes) << tile.block_m;
}

TEST(Conv2dCudaMma, ChoicesAreAHandfulAndFitTheirWorkspace) {
  constexpr CudaGpu kGpus[] = {kA100, kH200, {86, 82}, {87, 16}, {89, 58}, {120, 170}};
  std::mt19937 random(8);
  for (int i = 0; i < 200; ++i) {
    const ConvCase c = random_ungrouped_case(random);
    std::vector<CudaConv2d> found;
    const CudaGpu& gpu = kGpus[i % std::size(kGpus)];
    mma_choices({c.shape, c.params, c.weights, c.images, gpu}, found);
    EXPECT_GE(found.size(), 1u) << c.describe();
    EXPECT_LE(found.size(), 12u);
    std::set<std::string> names;
    for (const CudaConv2d& conv : found) {
      names.insert(conv.name);
      const MmaGrid grid(kMmaTiles[conv.variant], c.shape, c.images);
      EXPECT_LE(conv.split_k, grid.k_tiles) << conv.name << ": an empty part; " << c.describe();
      EXPECT_EQ(mma_workspace(conv, c.shape, c.images) > 0, conv.split_k > 1 && !conv.in_cluster);
      if (!conv.in_cluster) continue;
      EXPECT_TRUE(conv.split_k > 1 && mma_cluster_fits(kMmaTiles[conv.variant], conv.split_k)) << conv.name;
      EXPECT_GE(gpu.capability, 90) << conv.name << ": that GPU has no clusters";
    }
    EXPECT_EQ(names.size(), found.size());
  }
}

}  // namespace
}  // namespace octet::kernels::testing
