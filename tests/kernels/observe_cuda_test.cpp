// SPDX-License-Identifier: Apache-2.0
// Observers on the GPU follow the same values to the same bits as Observer of src/quant.
#include "kernels/training/observe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "src/quant/calibrate.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/cuda_tensors.h"

namespace octet::kernels {
namespace {

using test::DeviceArray;

/// Batches of growing and shrinking spread, some far from zero.
std::vector<std::vector<float>> batches() {
  std::mt19937 engine(5);
  std::vector<std::vector<float>> result;
  for (const size_t count : {1u, 5u, 8u, 2047u, 2049u, 70001u, 3000000u, 12u}) {
    std::normal_distribution<float> normal(result.size() == 3 ? 40.0f : 0.3f, 0.1f + static_cast<float>(count % 13));
    std::vector<float> batch(count);
    for (float& value : batch) value = normal(engine);
    if (count > 10) batch[count - 1] = 60;  // the last value counts too
    result.push_back(std::move(batch));
  }
  return result;
}

std::vector<float> after(const Clamp& clamp, std::vector<float> values) {
  for (float& value : values) value = value < clamp.lo ? clamp.lo : value > clamp.hi ? clamp.hi : value;
  return values;
}

struct Edge {
  QParams range;
  bool affine;
};

TEST(ObserveCuda, FollowsLikeTheCpuObserver) {
  OCTET_NEEDS_GPU();
  const Edge edges[] = {
      {{1, 0, -128, 127}, false}, {{1, 0, 0, 255}, false}, {{1, 0, 0, 255}, true}, {{1, 0, 0, 15}, true}};
  size_t turn = 0;
  for (const ValueType type : test::kTypes) {
    for (const double averaging : {0.0, 0.01, 0.3}) {
      for (const Clamp& clamp : {kNoClamp, kRelu, kRelu6}) {
        const Edge& edge = edges[turn++ % 4];
        Observer observer(averaging > 0 ? ObserverKind::moving_average : ObserverKind::minmax, averaging);
        const DeviceArray<EdgeQuantizer> device(
            {{.qparams = edge.range, .affine = edge.affine, .averaging = averaging}});
        size_t offset = 0;
        for (const std::vector<float>& batch : batches()) {
          const std::vector<uint8_t> bytes = test::narrowed(batch, type);
          const std::vector<float> seen = after(clamp, test::widened(bytes, type));
          observer.observe(seen.data(), seen.size());
          const DeviceArray<uint8_t> x(bytes, offset % 2 * test::bytes_of(type));
          ++offset;
          cuda_observe({x.data(), static_cast<long>(batch.size()), type, clamp}, device.data(), nullptr);
          const EdgeQuantizer got = device.read()[0];
          const Statistics& want = observer.statistics();
          ASSERT_EQ(got.range.lo, want.lo);
          ASSERT_EQ(got.range.hi, want.hi);
          ASSERT_EQ(got.qparams, choose_qparams(want.lo, want.hi, edge.range, edge.affine));
          ASSERT_EQ(got.not_finite, 0);
          ASSERT_EQ(got.blocks.done, 0u);
        }
      }
    }
  }
}

TEST(ObserveCuda, FlagsWhatIsNotFiniteAndKeepsTheRange) {
  OCTET_NEEDS_GPU();
  for (const float bad : {NAN, INFINITY, -INFINITY, 2e30f, -2e30f}) {
    for (const size_t at : {0u, 7u, 4000u, 5002u}) {
      std::vector<float> values(5003, 0.5f);
      values[1] = -1;
      const DeviceArray<EdgeQuantizer> edge({{.qparams = {1, 0, 0, 255}, .affine = 1}});
      const auto observe = [&] {
        const DeviceArray<float> x(values);
        cuda_observe({x.data(), static_cast<long>(values.size())}, edge.data(), nullptr);
        return edge.read()[0];
      };
      const EdgeQuantizer before = observe();
      EXPECT_EQ(before.not_finite, 0);
      values[at] = bad;
      values[2] = 9;
      EdgeQuantizer damaged = observe();
      EXPECT_EQ(damaged.not_finite, 1) << bad << " at " << at;
      EXPECT_EQ(damaged.range.hi, 0.5f);
      EXPECT_EQ(damaged.qparams, before.qparams);
      values[at] = 0;  // the next batch is taken again, and the flag stays
      const EdgeQuantizer next = observe();
      EXPECT_EQ(next.not_finite, 1);
      EXPECT_EQ(next.range.hi, 9);
    }
  }
}

TEST(CountCuda, EqualsTheCpuHistogram) {
  OCTET_NEEDS_GPU();
  for (const ValueType type : test::kTypes) {
    for (const Clamp& clamp : {kNoClamp, kRelu, kRelu6}) {
      Observer observer(ObserverKind::histogram);
      const DeviceArray<EdgeHistogram> device({EdgeHistogram{}});
      for (const std::vector<float>& batch : batches()) {
        const std::vector<uint8_t> bytes = test::narrowed(batch, type);
        const std::vector<float> seen = after(clamp, test::widened(bytes, type));
        observer.observe(seen.data(), seen.size());
        const DeviceArray<uint8_t> x(bytes);
        cuda_count({x.data(), static_cast<long>(batch.size()), type, clamp}, device.data(), nullptr);
      }
      const EdgeHistogram got = device.read()[0];
      const Statistics& want = observer.statistics();
      EXPECT_EQ(got.range.lo, want.lo);
      EXPECT_EQ(got.range.hi, want.hi);
      EXPECT_EQ(static_cast<float>(got.bins.first) * got.bins.width, want.histogram_lo);
      EXPECT_EQ(static_cast<float>(got.bins.first + kEdgeBins) * got.bins.width, want.histogram_hi);
      EXPECT_EQ(std::vector<double>(got.counts, got.counts + kEdgeBins), want.histogram);
    }
  }
}

TEST(CountCuda, NothingIsCountedAfterNaN) {
  OCTET_NEEDS_GPU();
  const DeviceArray<EdgeHistogram> device({EdgeHistogram{}});
  const std::vector<float> good(100, 1.0f), bad{1.0f, NAN};
  const DeviceArray<float> a(good), b(bad);
  cuda_count({a.data(), 100}, device.data(), nullptr);
  cuda_count({b.data(), 2}, device.data(), nullptr);
  cuda_count({a.data(), 100}, device.data(), nullptr);
  const EdgeHistogram got = device.read()[0];
  EXPECT_EQ(got.not_finite, 1);
  unsigned long long total = 0;
  for (const unsigned long long count : got.counts) total += count;
  EXPECT_EQ(total, 100u);
}

}  // namespace
}  // namespace octet::kernels
