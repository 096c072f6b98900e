// Weights for the wgmma kernels: tile after tile as they shall lie in shared memory, so that copying one is a plain
// copy; and the starts of sums for each kind of border.
#include <algorithm>
#include <array>

#include "kernels/conv2d_int8/cuda/mma/tiles.h"
#include "kernels/conv2d_int8/cuda/wgmma/step_rounding.h"
#include "kernels/conv2d_int8/cuda/wgmma/wgmma.h"
#include "kernels/sparsity/two_of_four.h"
#include "src/common/error.h"

namespace octet::kernels {

WgmmaPacked::WgmmaPacked(const WgmmaTile& tile, const Conv2dShape& g)
    : rows(g.in_h, g.out_h, g.kernel_h, g.stride_h, g.pad_h, g.dilation_h),
      columns(g.in_w, g.out_w, g.kernel_w, g.stride_w, g.pad_w, g.dilation_w) {
  channels = cuda_round_up(g.out_c, tile.block_n);
  const auto aligned = [](size_t n) { return (n + 255) / 256 * 256; };
  starts = cuda_constants_bytes(channels);
  row_class = aligned(starts + rows.taps.size() * columns.taps.size() * channels * sizeof(int32_t));
  column_class = row_class + rows.of_output.size();
  weight = aligned(column_class + columns.of_output.size());
  const int64_t steps =
      static_cast<int64_t>(cuda_round_up(g.in_c, tile.block_k)) / tile.block_k * g.kernel_h * g.kernel_w;
  bytes = weight + channels / tile.block_n * steps * tile.step_bytes();
}

namespace {

/// The sums of a channel's weights at each tap.
std::vector<int32_t> tap_sums(const Conv2dShape& g, const int8_t* weight) {
  std::vector<int32_t> sums(g.kernel_h * g.kernel_w);
  for (int32_t& sum : sums) {
    for (int c = 0; c < g.in_c; ++c) sum += *weight++;
  }
  return sums;
}

int32_t sum_inside(const Conv2dShape& g, const std::vector<int32_t>& sums, uint32_t rows, uint32_t columns) {
  int32_t sum = 0;
  for (int r = 0; r < g.kernel_h; ++r) {
    for (int s = 0; s < g.kernel_w; ++s) {
      if ((rows >> r & 1) && (columns >> s & 1)) sum += sums[r * g.kernel_w + s];
    }
  }
  return sum;
}

/// The weights of a channel and a tap, for a dense tile: to each step (WgmmaPacked) behind `tiles`, `chunk_bytes`
/// apart.
void pack_dense_row(const WgmmaTile& tile, int row, const int8_t* from, int in_c, uint8_t* tiles, size_t chunk_bytes) {
  for (int c = 0; c < in_c; ++c) {
    const int in_step = c % tile.block_k;
    uint8_t* step = tiles + c / tile.block_k * chunk_bytes + row * tile.block_k;
    step[mma_swizzle(tile.block_k, row, in_step / 16) * 16 + in_step % 16] = static_cast<uint8_t>(from[c]);
  }
}

/// The places of two of four weights that leave out none that is not 0.
std::array<int, kKept> kept_places(const int8_t* four, int count) {
  std::array<int, kKept> places{};
  int kept = 0;
  for (int i = 0; i < count && kept < kKept; ++i) {
    if (four[i] != 0) places[kept++] = i;
  }
  if (kept == 0) return {0, 1};
  if (kept == 1) return places[0] == 0 ? std::array{0, 1} : std::array{0, places[0]};
  return places;
}

/// The same for a sparse tile.
void pack_sparse_row(const WgmmaTile& tile, int row, const int8_t* from, int in_c, uint8_t* tiles, size_t chunk_bytes) {
  const int slices = tile.slices();
  for (int c = 0; c < in_c; c += kGroup) {
    const int column = c % kWgmmaSlice, piece = c % tile.block_k / kWgmmaSlice;
    uint8_t* step = tiles + c / tile.block_k * chunk_bytes;
    uint8_t* codes = step + piece * kWgmmaPieceBytes;
    uint8_t* words = step + slices * kWgmmaPieceBytes;
    const int thread = wgmma_kept_thread(row, column / 32), shift = column / kGroup % 2 * 4;
    uint8_t& kept = words[(thread * slices + piece) * 4 + column % 32 / 8];
    const std::array<int, kKept> places = kept_places(from + c, std::min(kGroup, in_c - c));
    kept = static_cast<uint8_t>((kept & ~(15 << shift)) | (places[0] | places[1] << 2) << shift);
    for (int i = 0; i < kKept; ++i) {
      if (c + places[i] >= in_c) continue;  // the last group may be shorter
      codes[wgmma_piece_byte(row, column / 2 + i)] = static_cast<uint8_t>(from[c + places[i]]);
    }
  }
}

/// Where no weights are, some two are said to be kept all the same: the same one twice is not allowed.
void keep_first_two(const WgmmaTile& tile, uint8_t* weight, const uint8_t* end) {
  constexpr int kFirstTwo = 0x44;
  const int codes = tile.block_n * tile.block_k / 2;
  for (; weight < end; weight += tile.step_bytes()) std::fill(weight + codes, weight + tile.step_bytes(), kFirstTwo);
}

}  // namespace

std::vector<uint8_t> wgmma_pack(const CudaConv2d& conv, const Conv2dShape& g, const Conv2dParams& p,
                                const Conv2dWeights& w) {
  const WgmmaTile& tile = kWgmmaTiles[conv.variant];
  if (tile.sparse && !wgmma_keeps_two_of_four(g, w.weight)) {
    throw promise_error("cuda convolution: " + conv.name + " is for weights of which two of four are 0, these are not");
  }
  const WgmmaPacked at(tile, g);
  const int taps = g.kernel_h * g.kernel_w, steps = cuda_round_up(g.in_c, tile.block_k) / tile.block_k * taps;
  const size_t step_bytes = tile.step_bytes();
  std::vector<uint8_t> packed = cuda_pack_constants(g, p, w, at.channels, at.bytes - cuda_constants_bytes(at.channels));
  float* constants = reinterpret_cast<float*>(packed.data());
  for (int k = 0; k < g.out_c; ++k) {
    constants[k] = w.multiplier[k] * kStepScale;
    constants[at.channels + k] = scaled_bias(w.bias[k]);
  }
  std::copy(at.rows.of_output.begin(), at.rows.of_output.end(), packed.begin() + at.row_class);
  std::copy(at.columns.of_output.begin(), at.columns.of_output.end(), packed.begin() + at.column_class);
  if (tile.sparse) keep_first_two(tile, packed.data() + at.weight, packed.data() + at.bytes);
  int32_t* starts = reinterpret_cast<int32_t*>(packed.data() + at.starts);
  for (int k = 0; k < g.out_c; ++k) {
    const int8_t* from = w.weight + static_cast<ptrdiff_t>(k) * taps * g.in_c;
    const std::vector<int32_t> sums = tap_sums(g, from);
    int32_t* start = starts + k;
    for (const uint32_t rows : at.rows.taps) {
      for (const uint32_t columns : at.columns.taps) {
        *start = -p.x.zero_point * sum_inside(g, sums, rows, columns);
        start += at.channels;
      }
    }
    uint8_t* tiles = packed.data() + at.weight + k / tile.block_n * (step_bytes * steps);
    const auto pack_row = tile.sparse ? pack_sparse_row : pack_dense_row;
    for (int tap = 0; tap < taps; ++tap, from += g.in_c, tiles += step_bytes) {
      pack_row(tile, wgmma_weight_row(k % tile.block_n), from, g.in_c, tiles, step_bytes * taps);
    }
  }
  return packed;
}

}  // namespace octet::kernels
