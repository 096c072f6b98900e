// SPDX-License-Identifier: Apache-2.0
// Fake quantization on the GPU gives the CPU kernels' bits, whatever the type, size, alignment and activation.
#include "kernels/training/fake_quantize.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "tests/cuda/gpu.h"
#include "tests/kernels/cuda_tensors.h"

namespace octet::kernels {
namespace {

using test::DeviceArray;

constexpr std::array kRanges = {QParams{0.05f, 0, -128, 127}, QParams{0.02f, 0, 0, 255}, QParams{0.03f, 113, 0, 255},
                                QParams{0.4f, 0, -2, 1},      QParams{1e-3f, 7, 0, 15},  QParams{3.0f, 255, 0, 255}};
constexpr std::array kClamps = {kNoClamp, kRelu, kRelu6};

struct Outcome {
  std::vector<uint8_t> y, bits;
};

/// By the CPU kernel on float32, with the activation before it.
Outcome expected(std::vector<float> values, ValueType type, const Clamp& clamp, const QParams& q) {
  std::vector<uint8_t> mask(values.size());
  std::vector<bool> passes(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    passes[i] = clamp.lo == -INFINITY || (values[i] > clamp.lo && values[i] < clamp.hi);
    values[i] = values[i] < clamp.lo ? clamp.lo : values[i] > clamp.hi ? clamp.hi : values[i];
  }
  fake_quantize(values.data(), values.size(), q, values.data(), mask.data());
  Outcome outcome{test::narrowed(values, type), std::vector<uint8_t>((values.size() + 7) / 8)};
  for (size_t i = 0; i < values.size(); ++i)
    outcome.bits[i / 8] |= static_cast<uint8_t>((mask[i] != 0 && passes[i]) << (i % 8));
  return outcome;
}

Outcome expected(const std::vector<uint8_t>& x, ValueType type, const Clamp& clamp, const QParams& q) {
  return expected(test::widened(x, type), type, clamp, q);
}

/// `offset` values past an aligned address.
Outcome on_gpu(const std::vector<uint8_t>& x, FakeQuantization work, size_t offset, bool in_place) {
  const size_t bytes = test::bytes_of(work.type);
  work.count = static_cast<long>(x.size() / bytes);
  const DeviceArray<uint8_t> in(x, offset * bytes), out(std::vector<uint8_t>(x.size(), 0xcd), offset * bytes);
  const DeviceArray<uint8_t> bits(std::vector<uint8_t>((work.count + 7) / 8, 0xcd));
  work.x = in.data();
  work.y = in_place ? in.data() : out.data();
  work.bits = bits.data();
  cuda_fake_quantize(work, nullptr);
  return {in_place ? in.read() : out.read(), bits.read()};
}

TEST(FakeQuantizeCuda, EqualsTheCpuKernelInEveryBit) {
  OCTET_NEEDS_GPU();
  for (const ValueType type : test::kTypes) {
    for (const QParams& q : kRanges) {
      const std::vector<uint8_t> x = test::narrowed(test::difficult_values(q, 5003), type);
      for (const Clamp& clamp : kClamps) {
        const FakeQuantization work{.type = type, .activation = clamp, .qparams = q};
        const Outcome want = expected(x, type, clamp, q), got = on_gpu(x, work, 0, false);
        EXPECT_EQ(got.y, want.y) << q.scale << " " << static_cast<int>(type);
        EXPECT_EQ(got.bits, want.bits) << q.scale << " " << static_cast<int>(type);
      }
    }
  }
}

TEST(FakeQuantizeCuda, AnySizeAlignmentAndPlace) {
  OCTET_NEEDS_GPU();
  const QParams q = kRanges[2];
  for (const ValueType type : test::kTypes) {
    const size_t bytes = test::bytes_of(type);
    const std::vector<uint8_t> all = test::narrowed(test::difficult_values(q, 3000), type);
    for (const size_t count : {1u, 7u, 8u, 9u, 2047u, 2048u, 2049u, 3000u}) {
      const std::vector<uint8_t> x(all.end() - static_cast<long>(count * bytes), all.end());
      const Outcome want = expected(x, type, kRelu, q);
      for (const size_t offset : {0u, 1u, 3u}) {
        for (const bool in_place : {false, true}) {
          const Outcome got = on_gpu(x, {.type = type, .activation = kRelu, .qparams = q}, offset, in_place);
          EXPECT_EQ(got.y, want.y) << count << " at " << offset;
          EXPECT_EQ(got.bits, want.bits) << count << " at " << offset;
        }
      }
    }
  }
}

TEST(FakeQuantizeCuda, EverySixteenBitValue) {
  OCTET_NEEDS_GPU();
  std::vector<uint8_t> x(2 << 16);
  for (size_t i = 0; i < x.size() / 2; ++i) {
    x[2 * i] = static_cast<uint8_t>(i);
    x[2 * i + 1] = static_cast<uint8_t>(i >> 8);
  }
  for (const ValueType type : {ValueType::float16, ValueType::bfloat16}) {
    for (const QParams& q : kRanges) {
      const Outcome want = expected(x, type, kNoClamp, q), got = on_gpu(x, {.type = type, .qparams = q}, 0, false);
      EXPECT_EQ(got.y, want.y);
      EXPECT_EQ(got.bits, want.bits);
    }
  }
}

/// Odd counts of channels, rows that packs of values straddle, sizes that end within a pack.
TEST(FakeQuantizeCuda, AddsBiasAndResidualFirst) {
  OCTET_NEEDS_GPU();
  const QParams q = kRanges[2];
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0, 1);
  for (const ValueType type : test::kTypes) {
    const size_t bytes = test::bytes_of(type);
    for (const int channels : {1, 3, 8, 10, 24, 64, 1001}) {
      const size_t count = static_cast<size_t>(channels) * (channels < 100 ? 141 : 3);
      const auto noise = [&](size_t size) {
        std::vector<float> values(size);
        for (float& value : values) value = 2 * normal(random);
        return values;
      };
      const std::vector<uint8_t> x = test::narrowed(noise(count), type), residual = test::narrowed(noise(count), type);
      const std::vector<float> bias = noise(channels);
      for (const bool biased : {false, true}) {
        for (const bool added : {false, true}) {
          std::vector<float> sum = test::widened(x, type);
          const std::vector<float> more = test::widened(residual, type);
          for (size_t i = 0; i < count; ++i) {
            if (biased) sum[i] += bias[i % channels];
            if (added) sum[i] += more[i];
          }
          for (const size_t offset : {0u, 1u}) {
            const DeviceArray<float> device_bias(bias, offset * sizeof(float));
            const DeviceArray<uint8_t> device_residual(residual, offset * bytes);
            const FakeQuantization work{.type = type,
                                        .bias = biased ? device_bias.data() : nullptr,
                                        .channels = channels,
                                        .residual = added ? device_residual.data() : nullptr,
                                        .activation = kRelu6,
                                        .qparams = q};
            const Outcome want = expected(sum, type, kRelu6, q);
            for (const bool in_place : {false, true}) {
              const Outcome got = on_gpu(x, work, offset, in_place);
              EXPECT_EQ(got.y, want.y) << channels << " channels at " << offset;
              EXPECT_EQ(got.bits, want.bits) << channels << " channels at " << offset;
            }
          }
        }
      }
    }
  }
}

TEST(FakeQuantizeCuda, ReadsQParamsWhenItRuns) {
  OCTET_NEEDS_GPU();
  const QParams stale = kRanges[0], fresh = kRanges[4];
  const std::vector<uint8_t> x = test::narrowed(test::difficult_values(fresh, 999), ValueType::float32);
  const DeviceArray<QParams> device({fresh});
  const FakeQuantization work{.device_qparams = device.data(), .qparams = stale};
  EXPECT_EQ(on_gpu(x, work, 0, false).y, expected(x, ValueType::float32, kNoClamp, fresh).y);
}

TEST(FakeQuantizeCuda, BackwardPassesWhereTheBitIsSet) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(3);
  for (const ValueType type : test::kTypes) {
    for (const size_t count : {1u, 8u, 1003u, 4100u}) {
      std::vector<uint8_t> dy(count * test::bytes_of(type)), bits((count + 7) / 8);  // any bits: NaN too
      for (uint8_t& byte : dy) byte = static_cast<uint8_t>(random());
      for (uint8_t& byte : bits) byte = static_cast<uint8_t>(random());
      std::vector<uint8_t> want = dy;
      for (size_t i = 0; i < want.size(); ++i) {
        const size_t value = i / test::bytes_of(type);
        if ((bits[value / 8] >> (value % 8) & 1) == 0) want[i] = 0;
      }
      for (const size_t offset : {0u, 1u}) {
        const DeviceArray<uint8_t> in(dy, offset * test::bytes_of(type)), pass(bits);
        const DeviceArray<uint8_t> out(std::vector<uint8_t>(dy.size(), 0xcd), offset * test::bytes_of(type));
        FakeQuantizationGradient work{in.data(), pass.data(), out.data(), static_cast<long>(count), type};
        cuda_fake_quantize_backward(work, nullptr);
        EXPECT_EQ(out.read(), want);
        work.dx = in.data();
        cuda_fake_quantize_backward(work, nullptr);
        EXPECT_EQ(in.read(), want) << "in place";
      }
    }
  }
}

}  // namespace
}  // namespace octet::kernels
