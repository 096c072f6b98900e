// SPDX-License-Identifier: Apache-2.0
// The matrix product of AMX (Intel's servers from Sapphire Rapids on): units of 32 pixels x 32 channels, all of k, in
// four of the eight tile registers, 16 rows of 64 bytes each.
//
// TDPBUSD adds to 16 x 16 sums the products of 16 pixels x 64 unsigned codes and of 64 x 16 channels' signed weights,
// so codes are used as they are. Weights come as for vpdpbusd, [k / 4][channels][4], which is the layout that the
// instruction asks for; codes are rows as they lie in memory. Per piece of k 4 loads of tiles (8 cycles each) serve 4
// products (16 cycles each): the blocking by 2 x 2 of Intel's Optimization Reference Manual. On two cores of Emerald
// Rapids a piece took 23 ns from L1, and 35 to 55 ns where weights and codes came from L2. That machine has phases in
// which tile instructions hardly overlap (80 to 95 ns); the loads stand before the products since that takes a seventh
// less then, and as long otherwise.
//
// Sums leave their registers through memory, since no instruction moves a tile to vectors, and become codes in AVX-512
// registers while the next unit is computed: a few pixels behind each piece, the last ones between the stores of that
// unit, which would otherwise wait for its products (52 cycles each) and keep what follows out of the core's queues.
//
// Sums begin with the channels' start values, the same for each row: a load with stride 0.
#include "kernels/conv/cpu/amx.h"

#include <immintrin.h>

#include "kernels/conv/cpu/avx512_epilogue.h"

namespace octet::kernels {
namespace {

constexpr int kTileRows = 16;
constexpr int kPairs = kTilePixels / 2;  // of a panel whose pixels are all neighbours
constexpr int kAll = 1 << 20;            // more pairs than a panel has
constexpr int kHalfChannels = kTileChannels / 2;
constexpr int kTileSums = kTileRows * kHalfChannels;

/// The operand of LDTILECFG.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

/// Sets the registers' shape: 0 to 3 hold sums, of both halves of the pixels for the first 16 channels, then for the
/// others; 4 and 5 codes, 6 and 7 weights. A panel of up to 16 rows is computed twice.
void configure(const TileProduct& p) {
  TileConfig config;
  for (int half = 0; half < 2; ++half) {
    const int rows = p.rows <= kTileRows ? p.rows : half == 0 ? kTileRows : p.rows - kTileRows;
    for (int tile = half; tile < 6; tile += 2) {
      config.rows[tile] = static_cast<uint8_t>(rows);
      config.row_bytes[tile] = static_cast<uint16_t>(tile < 4 ? kSumRow : p.piece_bytes);
    }
    config.rows[6 + half] = static_cast<uint8_t>(p.piece_bytes / 4);
    config.row_bytes[6 + half] = kSumRow;
  }
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

/// Replaces codes by the table's bytes; table: [4] vectors of 64 bytes.
OCTET_ALWAYS_INLINE __m512i look_up(const __m512i* table, __m512i codes) {
  const __m512i low = _mm512_permutex2var_epi8(table[0], codes, table[1]);
  const __m512i high = _mm512_permutex2var_epi8(table[2], codes, table[3]);
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(codes), low, high);
}

/// Computes a product; its sums become codes by the way.
template <bool kResidual, bool kLookup>
class Product {
 public:
  explicit Product(const TileProduct& p) : p_(p), constants_(*p.epilogue) {
    code_lines_ = p.together > 1 ? kTilePixels : (kTilePixels + p.blocks - 1) / p.blocks;
    pairs_ = (kPairs + p.pieces - 1) / p.pieces;
    for (int i = 0; kLookup && i < 4; ++i) table_[i] = _mm512_loadu_si512(p.lookup + 64 * i);
  }

  void run() {
    for (int first = 0; first < p_.panel_count; first += p_.together) {
      const int last = first + p_.together < p_.panel_count ? first + p_.together : p_.panel_count;
      for (int block = 0; block < p_.blocks; ++block) {
        for (int panel = first; panel < last; ++panel) {
          if (block == 0) next_codes_ = p_.in_place && panel + 1 < p_.panel_count ? p_.panels[panel + 1].a : nullptr;
          compute(panel, block);
          if (p_.together > 1) next_codes_ = nullptr;
        }
      }
    }
    finish(kAll);
  }

 private:
  /// Computes a block of a panel, and meanwhile turns the sums of the unit before into codes.
  void compute(int panel, int block) {
    const TilePanel& from = p_.panels[panel];
    const ptrdiff_t piece_weights = static_cast<ptrdiff_t>(p_.piece_bytes) * kHalfChannels;
    const ptrdiff_t half_weights = piece_weights * p_.pieces, a_stride = p_.a_stride;
    const ptrdiff_t below = p_.rows > kTileRows ? kTileRows * a_stride : 0;
    const int8_t* w = p_.w + 2 * block * half_weights;
    const int32_t* init = p_.init + block * kTileChannels;
    if (block % 2 == 0) prefetch_pixels(from, block * kTileChannels);

    __asm__ volatile("" : : : "memory");  // the intrinsics do not say that they read memory
    _tile_loadd(0, init, 0);
    _tile_loadd(1, init, 0);
    _tile_loadd(2, init + kHalfChannels, 0);
    _tile_loadd(3, init + kHalfChannels, 0);
    for (int piece = 0; piece < p_.pieces; ++piece, w += piece_weights) {
      const uint8_t* a = from.a + p_.piece_at[piece];
      _tile_loadd(6, w, kSumRow);
      _tile_loadd(4, a, a_stride);
      _tile_loadd(7, w + half_weights, kSumRow);
      _tile_loadd(5, a + below, a_stride);
      _tile_dpbusd(0, 4, 6);
      _tile_dpbusd(1, 5, 6);
      _tile_dpbusd(2, 4, 7);
      _tile_dpbusd(3, 5, 7);
      if (next_codes_ != nullptr) {
        for (int line = 0; line < code_lines_; ++line, next_codes_ += 64) _mm_prefetch(next_codes_, _MM_HINT_T1);
      }
      if (piece < kPairs) finish(pairs_);
    }
    int32_t* sums = sums_[slot_ ^ 1];
    _tile_stored(0, sums, kSumRow);
    finish(2);
    _tile_stored(1, sums + kTileSums, kSumRow);
    finish(2);
    _tile_stored(2, sums + 2 * kTileSums, kSumRow);
    finish(2);
    _tile_stored(3, sums + 3 * kTileSums, kSumRow);
    finish(kAll);
    slot_ ^= 1;
    begin_finishing(from, block);
  }

  /// Asks for the cache lines that a panel's codes and residual lie in, from a channel on.
  void prefetch_pixels(const TilePanel& panel, int channel) {
    uint8_t* y = p_.y + panel.first_pixel * p_.y_stride + channel;
    const uint8_t* residual = kResidual ? p_.residual + panel.first_pixel * p_.residual_stride + channel : nullptr;
    for (int i = 0; i < kTilePixels; ++i, y += p_.y_stride) {
      __builtin_prefetch(y, 1);
      if (kResidual) __builtin_prefetch(residual + i * p_.residual_stride);
    }
  }

  void begin_finishing(const TilePanel& panel, int block) {
    const int channel = block * kTileChannels, left = p_.channels - channel;
    sums_of_unit_ = sums_[slot_];
    if (kResidual) residual_ = p_.residual + panel.first_pixel * p_.residual_stride + channel;
    y_ = p_.y + panel.first_pixel * p_.y_stride + channel;
    multiplier_ = p_.multiplier + channel;
    bias_ = p_.bias + channel;
    mask_ = left >= kTileChannels ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
    pair_ = panel.pairs;
    last_pair_ = pair_ + panel.pair_count;
    single_ = panel.singles;
    last_single_ = single_ + panel.single_count;
  }

  /// Turns sums into codes, up to so many pairs of pixels.
  __attribute__((noinline)) void finish(int pairs) {
    const TilePair *pair = pair_, *last = last_pair_ - pair < pairs ? last_pair_ : pair + pairs;
    pair_ = last;
    const __m512 multiplier[2] = {_mm512_load_ps(multiplier_), _mm512_load_ps(multiplier_ + kHalfChannels)};
    const __m512 bias[2] = {_mm512_load_ps(bias_), _mm512_load_ps(bias_ + kHalfChannels)};
    for (; pair < last; ++pair) {
      const __m512i codes = codes_of(pair->sums, pair->pixel, kSumRow, 1, multiplier, bias);
      uint8_t* y = y_ + pair->pixel * p_.y_stride;
      if (mask_ == ~__mmask32{0}) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), _mm512_castsi512_si256(codes));
        // GCC would first extract the other half into a register, by the unit that packs.
        auto* next = reinterpret_cast<__m256i_u*>(y + p_.y_stride);
        __asm__("vextracti64x4 $1, %1, %0" : "=m"(*next) : "v"(codes));
      } else {
        _mm256_mask_storeu_epi8(y, mask_, _mm512_castsi512_si256(codes));
        _mm256_mask_storeu_epi8(y + p_.y_stride, mask_, _mm512_extracti64x4_epi64(codes, 1));
      }
    }
    if (pair_ != last_pair_) return;
    for (; single_ < last_single_; ++single_) {
      const __m512i codes = codes_of(single_->sums, single_->pixel, 0, 0, multiplier, bias);
      _mm256_mask_storeu_epi8(y_ + single_->pixel * p_.y_stride, mask_, _mm512_castsi512_si256(codes));
    }
  }

  /// Returns the codes of two pixels, 32 channels each.
  OCTET_ALWAYS_INLINE __m512i codes_of(int sums, int pixel, int sum_step, int pixel_step, const __m512 (&multiplier)[2],
                                       const __m512 (&bias)[2]) const {
    const char* from = reinterpret_cast<const char*>(sums_of_unit_) + sums;
    __m512i words[2];
#pragma GCC unroll 2
    for (int m = 0; m < 2; ++m, from += sum_step) {
      __m512 t[2];
      t[0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(from)), multiplier[0], bias[0]);
      t[1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(from + 2 * kTileRows * kSumRow)), multiplier[1],
                             bias[1]);
      if constexpr (kResidual) {
        const uint8_t* residual = residual_ + (pixel + m * pixel_step) * p_.residual_stride;
        add_residual_pair(_mm256_maskz_loadu_epi8(mask_, residual), constants_, t);
      }
      words[m] = round_words(t[0], t[1], constants_);
    }
    const __m512i by_pixel = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    const __m512i codes = _mm512_permutexvar_epi64(by_pixel, pack_codes(words[0], words[1], constants_));
    if constexpr (kLookup) return look_up(table_, codes);
    return codes;
  }

  const TileProduct& p_;
  EpilogueConstants constants_;
  __m512i table_[4];
  // The codes of the next panel that the next piece asks for, and how many lines of them.
  const uint8_t* next_codes_ = nullptr;
  int code_lines_;
  int pairs_;     // of pixels that are finished behind each piece
  int slot_ = 0;  // where the sums of the unit that is being finished are
  // That unit, and what is left of it.
  const int32_t* sums_of_unit_ = nullptr;
  const uint8_t* residual_ = nullptr;
  uint8_t* y_ = nullptr;
  const float *multiplier_ = p_.multiplier, *bias_ = p_.bias;
  __mmask32 mask_ = 0;
  const TilePair *pair_ = nullptr, *last_pair_ = nullptr, *single_ = nullptr, *last_single_ = nullptr;
  alignas(64) int32_t sums_[2][4 * kTileSums];
};

}  // namespace

void amx_product(const TileProduct& product) {
  configure(product);
  const bool residual = product.epilogue->has_residual;
  if (product.lookup != nullptr) {
    residual ? Product<true, true>(product).run() : Product<false, true>(product).run();
  } else {
    residual ? Product<true, false>(product).run() : Product<false, false>(product).run();
  }
  _tile_release();
}

}  // namespace octet::kernels
