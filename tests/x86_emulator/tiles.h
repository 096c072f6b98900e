// SPDX-License-Identifier: Apache-2.0
// The tile registers of AMX in plain C++, by the pseudo code of Intel's Software Developer's Manual (volume 2, the
// instructions' pages; volume 1, chapter 18).
#pragma once

#include <cstdint>
#include <cstring>

namespace octet::x86_emulator {

/// The operand of LDTILECFG, 64 bytes.
struct TileConfig {
  uint8_t palette = 0, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

/// The eight tile registers of one thread. What a processor refuses (#UD, #GP) returns false and changes nothing.
class Tiles {
 public:
  static constexpr int kTiles = 8, kRows = 16, kRowBytes = 64;

  bool configure(const TileConfig& config) {
    if (config.palette > 1 || config.start_row != 0) return false;
    for (const uint8_t byte : config.reserved)
      if (byte != 0) return false;
    for (int t = 0; t < 16; ++t) {
      const int rows = config.rows[t], bytes = config.row_bytes[t];
      if (rows > kRows || bytes > kRowBytes || (rows == 0) != (bytes == 0)) return false;
      if (t >= kTiles && rows != 0) return false;
    }
    release();
    if (config.palette == 1) config_ = config;
    return true;
  }

  void release() {
    config_ = TileConfig{};
    std::memset(data_, 0, sizeof(data_));
  }

  const TileConfig& config() const { return config_; }

  bool zero(int tile) {
    if (!exists(tile)) return false;
    std::memset(data_[tile], 0, sizeof(data_[tile]));
    return true;
  }

  bool load(int tile, const uint8_t* from, int64_t stride) {
    if (!exists(tile)) return false;  // what lies behind its rows and bytes is 0 since configure()
    for (int row = 0; row < config_.rows[tile]; ++row)
      std::memcpy(data_[tile][row], from + row * stride, config_.row_bytes[tile]);
    return true;
  }

  bool store(int tile, uint8_t* to, int64_t stride) const {
    if (!exists(tile)) return false;
    for (int row = 0; row < config_.rows[tile]; ++row)
      std::memcpy(to + row * stride, data_[tile][row], config_.row_bytes[tile]);
    return true;
  }

  /// Adds to sums[m][n] the four products of the bytes of a[m][k] and b[k][n], for all k; A and B: int8_t or uint8_t.
  template <class A, class B>
  bool multiply(int sums, int a, int b) {
    if (!exists(sums) || !exists(a) || !exists(b) || sums == a || sums == b || a == b) return false;
    const int bytes = config_.row_bytes[sums], depth = config_.row_bytes[a];
    if (bytes % 4 != 0 || depth % 4 != 0 || bytes != config_.row_bytes[b]) return false;
    if (config_.rows[sums] != config_.rows[a] || depth / 4 != config_.rows[b]) return false;
    for (int m = 0; m < config_.rows[a]; ++m) {
      for (int k = 0; k < depth / 4; ++k) {
        for (int n = 0; n < bytes / 4; ++n) {
          uint32_t sum;  // sums wrap
          std::memcpy(&sum, data_[sums][m] + 4 * n, 4);
          for (int i = 0; i < 4; ++i)
            sum +=
                static_cast<uint32_t>(static_cast<A>(data_[a][m][4 * k + i]) * static_cast<B>(data_[b][k][4 * n + i]));
          std::memcpy(data_[sums][m] + 4 * n, &sum, 4);
        }
      }
    }
    return true;
  }

 private:
  bool exists(int tile) const { return config_.palette == 1 && tile < kTiles && config_.rows[tile] != 0; }

  TileConfig config_;
  uint8_t data_[kTiles][kRows][kRowBytes] = {};
};

}  // namespace octet::x86_emulator
