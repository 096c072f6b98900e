// SPDX-License-Identifier: Apache-2.0
// Each emulated instruction against a plain form of its own: with the emulator loaded that tests the emulator; on a
// processor that has the instructions, the plain forms.
#include <gtest/gtest.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#define _Bool bool  // the header is of C
#include <sys/platform/x86.h>
#undef _Bool

extern "C" int arch_prctl(int code, unsigned long argument);

namespace octet::x86_emulator {
namespace {

struct alignas(64) Config {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
  void set(int tile, int tile_rows, int bytes) {
    rows[tile] = static_cast<uint8_t>(tile_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};

using Bytes = std::vector<uint8_t>;

Bytes random_bytes(std::mt19937& random, size_t count) {
  Bytes bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

void load_config(const Config& config) { __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory"); }

class Amx : public ::testing::Test {
 protected:
  void SetUp() override {
    constexpr int kRequestPermission = 0x1023, kTileData = 18;
    if (!CPU_FEATURE_ACTIVE(AMX_TILE) || !CPU_FEATURE_ACTIVE(AMX_INT8)) GTEST_SKIP() << "no AMX";
    if (::arch_prctl(kRequestPermission, kTileData) != 0) GTEST_SKIP() << "Linux does not permit tiles";
  }
};

/// One product as the plain form has it: sums [rows][columns], a [rows][4 * depth], b [depth][4 * columns].
template <class A, class B>
void add_products(std::vector<int32_t>& sums, const Bytes& a, const Bytes& b, int rows, int depth, int columns) {
  for (int m = 0; m < rows; ++m) {
    for (int n = 0; n < columns; ++n) {
      int64_t sum = sums[m * columns + n];
      for (int k = 0; k < 4 * depth; ++k) {
        const int x = static_cast<A>(a[m * 4 * depth + k]);
        const int w = static_cast<B>(b[(k / 4) * 4 * columns + 4 * n + k % 4]);
        sum += x * w;
      }
      sums[m * columns + n] = static_cast<int32_t>(sum);
    }
  }
}

TEST_F(Amx, ProductsOfAllShapesAndSigns) {
  std::mt19937 random(3);
  for (int turn = 0; turn < 400; ++turn) {
    const int rows = 1 + static_cast<int>(random() % 16), depth = 1 + static_cast<int>(random() % 16);
    const int columns = 1 + static_cast<int>(random() % 16);
    const Bytes a = random_bytes(random, static_cast<size_t>(rows) * 4 * depth);
    const Bytes b = random_bytes(random, static_cast<size_t>(depth) * 4 * columns);
    std::vector<int32_t> sums(static_cast<size_t>(rows) * columns);
    for (int32_t& sum : sums) sum = static_cast<int32_t>(random());
    std::vector<int32_t> expected = sums;
    Config config;
    config.set(2, rows, 4 * columns);
    config.set(5, rows, 4 * depth);
    config.set(7, depth, 4 * columns);
    load_config(config);
    _tile_loadd(2, sums.data(), 4 * columns);
    _tile_loadd(5, a.data(), 4 * depth);
    _tile_stream_loadd(7, b.data(), 4 * columns);
    switch (turn % 4) {
      case 0:
        _tile_dpbusd(2, 5, 7);
        add_products<uint8_t, int8_t>(expected, a, b, rows, depth, columns);
        break;
      case 1:
        _tile_dpbssd(2, 5, 7);
        add_products<int8_t, int8_t>(expected, a, b, rows, depth, columns);
        break;
      case 2:
        _tile_dpbsud(2, 5, 7);
        add_products<int8_t, uint8_t>(expected, a, b, rows, depth, columns);
        break;
      default:
        _tile_dpbuud(2, 5, 7);
        add_products<uint8_t, uint8_t>(expected, a, b, rows, depth, columns);
    }
    _tile_stored(2, sums.data(), 4 * columns);
    ASSERT_EQ(sums, expected) << turn;
  }
  _tile_release();
}

TEST_F(Amx, RowsAreAStrideApartAndRowsBeyondAreUntouched) {
  std::mt19937 random(5);
  const Bytes from = random_bytes(random, 16 * 100);
  Bytes to(16 * 80, 0xEE), expected = to;
  Config config;
  config.set(3, 9, 20);
  load_config(config);
  _tile_loadd(3, from.data() + 15 * 100, -100);
  _tile_stored(3, to.data(), 80);
  for (int row = 0; row < 9; ++row) std::memcpy(expected.data() + row * 80, from.data() + (15 - row) * 100, 20);
  EXPECT_EQ(to, expected);
  _tile_loadd(3, from.data(), 0);
  _tile_stored(3, to.data(), 80);
  for (int row = 0; row < 9; ++row) std::memcpy(expected.data() + row * 80, from.data(), 20);
  EXPECT_EQ(to, expected);
  _tile_zero(3);
  _tile_stored(3, to.data(), 80);
  for (int row = 0; row < 9; ++row) std::memset(expected.data() + row * 80, 0, 20);
  EXPECT_EQ(to, expected);
  _tile_release();
}

TEST_F(Amx, AConfigurationIsKeptAndReleased) {
  Config config, read;
  config.set(0, 16, 64);
  config.set(6, 3, 12);
  load_config(config);
  __asm__ volatile("sttilecfg %0" : "=m"(read));
  EXPECT_EQ(std::memcmp(&read, &config, sizeof(config)), 0);
  _tile_release();
  __asm__ volatile("sttilecfg %0" : "=m"(read));
  const Bytes zeros(sizeof(read));
  EXPECT_EQ(std::memcmp(&read, zeros.data(), sizeof(read)), 0);
}

TEST_F(Amx, EachThreadHasItsTiles) {
  Config config;
  config.set(1, 1, 4);
  load_config(config);
  int32_t value = 11, other = 22, read = 0;
  _tile_loadd(1, &value, 4);
  std::thread([&] {
    load_config(config);
    _tile_loadd(1, &other, 4);
    _tile_release();
  }).join();
  _tile_stored(1, &read, 4);
  EXPECT_EQ(read, 11);
  _tile_release();
}

TEST_F(Amx, ShapesThatDoNotFitAreIllegal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto product = [](int depth_of_a, int depth_of_b) {
    Config config;
    config.set(0, 4, 64);
    config.set(1, 4, 4 * depth_of_a);
    config.set(2, depth_of_b, 64);
    load_config(config);
    _tile_dpbusd(0, 1, 2);
  };
  EXPECT_EXIT(product(7, 8), ::testing::KilledBySignal(SIGILL), "");
  EXPECT_EXIT(_tile_zero(0), ::testing::KilledBySignal(SIGILL), "");  // no configuration
}

class AvxVnni : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CPU_FEATURE_ACTIVE(AVX_VNNI)) GTEST_SKIP() << "no AVX-VNNI";
  }

  static void expect_sums(const int32_t (&sums)[8], const int32_t (&before)[8], const uint8_t (&x)[32],
                          const uint8_t (&w)[32], int lanes) {
    for (int lane = 0; lane < 8; ++lane) {
      int64_t sum = before[lane];
      for (int i = 0; i < 4; ++i) sum += int{x[4 * lane + i]} * int{static_cast<int8_t>(w[4 * lane + i])};
      EXPECT_EQ(sums[lane], lane < lanes ? static_cast<int32_t>(sum) : 0) << lane;
    }
  }

  static void draw(std::mt19937& random, int32_t (&sums)[8], uint8_t (&x)[32], uint8_t (&w)[32]) {
    for (int32_t& sum : sums) sum = static_cast<int32_t>(random());
    for (uint8_t& byte : x) byte = static_cast<uint8_t>(random());
    for (uint8_t& byte : w) byte = static_cast<uint8_t>(random());
  }
};

TEST_F(AvxVnni, BytesInRegistersAndInMemory) {
  std::mt19937 random(7);
  for (int turn = 0; turn < 100; ++turn) {
    int32_t sums[8], before[8];
    uint8_t x[32], w[32];
    draw(random, sums, x, w);
    std::memcpy(before, sums, sizeof(sums));
    __m256i acc = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums));
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    const __m256i weights = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
    if (turn % 2 == 0) {  // high numbers of registers, a scaled index, a displacement
      const long index = 3;
      const uint8_t* base = w - 4 * 3 - 1000;
      __asm__(
          "vmovdqa %1, %%ymm14\n\tvmovdqa %0, %%ymm9\n\t%{vex%} vpdpbusd 1000(%2,%3,4), %%ymm14, %%ymm9\n\tvmovdqa "
          "%%ymm9, %0"
          : "+x"(acc)
          : "x"(codes), "r"(base), "r"(index), "m"(w)
          : "ymm9", "ymm14");
    } else {
      acc = _mm256_dpbusd_avx_epi32(acc, codes, weights);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), acc);
    expect_sums(sums, before, x, w, 8);
  }
}

TEST_F(AvxVnni, TheShortFormClearsTheUpperHalf) {
  std::mt19937 random(9);
  int32_t sums[8], before[8];
  uint8_t x[32], w[32];
  draw(random, sums, x, w);
  std::memcpy(before, sums, sizeof(sums));
  __m256i acc = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums));
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  const __m256i weights = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
  __asm__("%{vex%} vpdpbusd %x2, %x1, %x0" : "+x"(acc) : "x"(codes), "x"(weights));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), acc);
  expect_sums(sums, before, x, w, 4);
}

TEST_F(AvxVnni, Words) {
  alignas(32) int16_t x[16], w[16];
  alignas(32) int32_t sums[8];
  for (int i = 0; i < 16; ++i)
    x[i] = static_cast<int16_t>(i * 3001 - 24000), w[i] = static_cast<int16_t>(31000 - i * 3777);
  for (int i = 0; i < 8; ++i) sums[i] = 1 << (3 * i);
  const __m256i result = _mm256_dpwssd_avx_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(sums)),
                                                 _mm256_load_si256(reinterpret_cast<const __m256i*>(x)),
                                                 _mm256_load_si256(reinterpret_cast<const __m256i*>(w)));
  alignas(32) int32_t actual[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(actual), result);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(actual[i], sums[i] + x[2 * i] * w[2 * i] + x[2 * i + 1] * w[2 * i + 1]) << i;
}

// The other registers, general and vector, are what they were.
TEST_F(AvxVnni, NothingElseChanges) {
  alignas(64) uint8_t before[16][32], after[16][32];
  std::mt19937 random(11);
  for (auto& value : before)
    for (uint8_t& byte : value) byte = static_cast<uint8_t>(random());
      // clang-format off
#define OCTET_EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
#define OCTET_LOAD(N) "vmovdqa 32*" #N "(%0), %%ymm" #N "\n\t"
#define OCTET_STORE(N) "vmovdqa %%ymm" #N ", 32*" #N "(%1)\n\t"
#define OCTET_NAME(N) "ymm" #N,
  __asm__ volatile(OCTET_EACH(OCTET_LOAD) "%{vex%} vpdpbusd %%ymm2, %%ymm1, %%ymm5\n\t" OCTET_EACH(OCTET_STORE)
                   : : "r"(before), "r"(after) : OCTET_EACH(OCTET_NAME) "memory");
  // clang-format on
  for (int i = 0; i < 16; ++i) EXPECT_EQ(std::memcmp(before[i], after[i], 32) == 0, i != 5) << i;
}

}  // namespace
}  // namespace octet::x86_emulator
