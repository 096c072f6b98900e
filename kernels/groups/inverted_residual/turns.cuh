// SPDX-License-Identifier: Apache-2.0
// The kernel of inverted residuals in which a thread block computes several tiles in turns, most of them at the same
// place of successive images. So weights are loaded once, and what depends on the place is computed once. The next
// tile's input is copied, and its first channels are expanded, while this tile is computed. Included by the sources
// that CMake writes.
#pragma once

#include "kernels/core/launch.cuh"
#include "kernels/groups/inverted_residual/products.cuh"
#include "kernels/groups/inverted_residual/store.cuh"

namespace octet::kernels {

/// Returns which of the pixels that this thread expands are inside the image: bit i stands for pixel lane / 4 of the
/// warp's i-th unit of eight pixels of the halo.
__device__ __forceinline__ uint32_t pixels_inside(const InvertedArgs& p, const InvertedPlace& at) {
  const int warps = blockDim.x / 32;
  uint32_t bits = 0;
#pragma unroll 1
  for (int unit = threadIdx.x / 32, i = 0; unit < p.shared.units; unit += warps, ++i) {
    const int pixel = unit * 8 + threadIdx.x % 32 / 4, row = p.by_halo_w.divide(pixel);
    const int y = row - at.first_y, x = pixel - row * p.tiles.halo_w - at.first_x;
    if (y >= 0 && y < at.inside_h && x >= 0 && x < at.inside_w) bits |= 1u << i;
  }
  return bits;
}

/// Expands the halo's pixels of a pair of images to a chunk of hidden channels. Pixels outside the image are computed,
/// but not stored. A thread has the same pixel of both images, whose words are neighbours in each plane.
template <bool kRelu>
__device__ __forceinline__ void expand_halo(const InvertedArgs& p, int chunk, int x, int planes, uint32_t inside) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const ExpandedChunk<kRelu> expanded(p, chunk);
  uint32_t from = shared_address(inverted_shared) + x + lane % 16 / 8 * p.shared.x_image +
                  (warp * 8 + lane % 8) * p.shared.x_pitch + (lane / 16 ^ (lane / 4 & p.shared.x_swap)) * 16;
  int to = planes + lane % 4 / 2 * p.shared.plane + lane % 2 * 8 + (warp * 8 + lane / 4) * 16;
#pragma unroll 1
  for (int unit = warp; unit < p.shared.units; unit += warps) {
    uint2 codes[2];
    expanded.pixels(p, from, codes);
    if (inside & 1) {
      shared_at<uint2>(to) = make_uint2(codes[0].x, codes[1].x);
      shared_at<uint2>(to + 2 * p.shared.plane) = make_uint2(codes[0].y, codes[1].y);
    }
    inside >>= 1, from += warps * 8 * p.shared.x_pitch, to += warps * 8 * 16;
  }
}

/// Calls with(offset in shared memory, source) for each 16 bytes of x that this thread copies for the expanding product
/// of a tile: the halo of each image, in its order.
template <class With>
__device__ __forceinline__ void for_halo(const InvertedArgs& p, InvertedPlace at, int to, const With& with) {
  const int pieces = p.by_x_pieces.divisor, images = at.images;
  at.images = 1;
#pragma unroll 1
  for (int i = 0; i < images; ++i, ++at.image, to += p.shared.x_image) {
    for_rows(p, at, threadIdx.x / 32, blockDim.x / 32, [&](int, int position, const uint8_t* from) {
#pragma unroll 1
      for (int item = threadIdx.x % 32; item < at.inside_w * pieces; item += 32) {
        const int x = p.by_x_pieces.divide(item), piece = item - x * pieces, pixel = position / 16 + x;
        with(to + pixel * p.shared.x_pitch + (piece ^ (pixel / 4 & p.shared.x_swap)) * 16,
             from + x * p.in_stride + piece * 16);
      }
    });
  }
}

/// Computes `turns` tiles of one place, from number `first` on, in steps; a step is a chunk of a tile.
template <int kRows, int kStride, int kQuads, bool kExpand, bool kRelu>
class InvertedTurns {
 public:
  __device__ __forceinline__ InvertedTurns(const InvertedArgs& args, int place, int first, int turns)
      : p_(args), first_(first), turns_(turns) {
    const InvertedPlace at(p_, kStride, place);
    __syncthreads();  // all threads have read the previous place
    static_assert(sizeof(InvertedPlace) <= kPlaceBytes);
    // Stored in shared memory and read again where it is needed, to save registers.
    if (threadIdx.x == 0) shared_at<InvertedPlace>(p_.shared.positions) = at;
    const Columns columns(p_, at, threadIdx.x / 32);
    for (int i = 0; i < 2 / kImages; ++i) column(i) = columns.pixel[i] * 8 + max(columns.rows[i], 0);
    fill_planes(p_, InvertedGroup::alone(p_), kBuffers * kPlanes / 2);
    if constexpr (kExpand) inside_ = pixels_inside(p_, at);
    find_windows<kRows, kStride, kExpand>(p_, InvertedGroup::alone(p_), window_);
    __syncthreads();
  }

  __device__ __forceinline__ void run() {
    begin();
    int buffer = 0;
#pragma unroll 1
    for (int turn = 0; turn < turns_; ++turn) {
      int32_t sum[kRows][kQuads * 4][4] = {};
#pragma unroll 1
      for (int c = 0; c < p_.tiles.chunks; ++c) {
        const int chunk = c * p_.chunk.bytes;
        next(turn, c, buffer);
        const int here = buffer * kPlanes * p_.shared.plane, window[2] = {window_[0] + here, window_[1] + here};
        uint32_t codes[kRows][4] = {};
#pragma unroll
        for (int plane = 0; plane < 2; ++plane) {
          depthwise<kRows, kStride, kExpand, kRelu>(p_, chunk, plane, window, codes);
        }
        project<kRows, kQuads>(chunk + p_.chunk.project, codes, sum);
        buffer = buffer + 1 == kBuffers ? 0 : buffer + 1;
      }
      store_turn<kRows, kQuads>(p_, columns(turn), sum);
    }
  }

 private:
  static constexpr int kBuffers = inverted_turn_buffers(kExpand), kImages = inverted_turn_images(kExpand);
  static constexpr int kPlanes = 2 * kImages;  // planes of a buffer
  using Columns = OutputColumns<kRows, kExpand>;

  static __device__ __forceinline__ void copy(int to, const uint8_t* from) {
    copy_async(shared_address(inverted_shared) + to, from);
  }
  static __device__ __forceinline__ void flip(int to, const uint8_t*) { flip_codes(to); }

  __device__ __forceinline__ InvertedPlace place(int turn) const {
    InvertedPlace at = shared_at<const InvertedPlace>(p_.shared.positions);
    at.image = (first_ + turn) * kImages, at.images = min(kImages, p_.images - at.image);
    return at;
  }
  /// Returns the stored column i of a thread for the first image: eight times its pixel, plus its rows.
  __device__ __forceinline__ uint32_t& column(int i) const {
    return shared_at<uint32_t>(p_.shared.positions + kPlaceBytes + (i * blockDim.x + threadIdx.x) * 4);
  }
  __device__ __forceinline__ Columns columns(int turn) const {
    Columns found;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int image = (first_ + turn) * kImages + (kExpand ? i : 0);
      const uint32_t of_first = column(kExpand ? 0 : i);
      found.pixel[i] = image * p_.out_h * p_.out_w + of_first / 8;
      found.rows[i] = image < p_.images ? of_first % 8 : 0;
    }
    return found;
  }
  __device__ __forceinline__ int planes(int buffer) const {
    return p_.shared.hidden + buffer * kPlanes * p_.shared.plane;
  }
  __device__ __forceinline__ int x_of(int turn) const { return p_.shared.x + turn % 2 * p_.shared.x_buffer; }

  /// Begins to copy a tile's input.
  __device__ __forceinline__ void copy_tile(int turn) const {
    if (turn < turns_) for_halo(p_, place(turn), x_of(turn), copy);
    copy_async_commit();
  }
  /// Without expand: begins to copy the next chunk that has not been copied.
  __device__ __forceinline__ void copy_chunk(int buffer) {
    if (ahead_turn_ < turns_) {
      for_windows(p_, place(ahead_turn_), InvertedGroup::alone(p_), planes(buffer), ahead_chunk_, copy);
      if (++ahead_chunk_ == p_.tiles.chunks) ahead_chunk_ = 0, ++ahead_turn_;
    }
    copy_async_commit();
  }

  /// Must be called before the first step: begins to copy the input of two tiles (without expand, of two chunks), and
  /// computes the hidden codes of the first step.
  __device__ __forceinline__ void begin() {
    if constexpr (kExpand) {
      copy_tile(0);
      copy_tile(1);
      copy_async_wait<1>();
      if (p_.flip_x) for_halo(p_, place(0), x_of(0), flip);
      __syncthreads();
      expand_halo<kRelu>(p_, 0, x_of(0), planes(0), inside_);
    } else {
      copy_chunk(0);
      copy_chunk(1);
    }
  }

  /// Must be called before each step; it has the only barrier of a step. Behind it all hidden codes of this step are
  /// complete and those of the previous step have been read, so those of the next step are computed, or those of the
  /// step after the next are copied.
  __device__ __forceinline__ void next(int turn, int c, int buffer) {
    if constexpr (kExpand) {
      const bool last = c + 1 == p_.tiles.chunks;
      if (last) {
        copy_async_wait<0>();
        if (p_.flip_x && turn + 1 < turns_) for_halo(p_, place(turn + 1), x_of(turn + 1), flip);
      }
      __syncthreads();
      if (last) copy_tile(turn + 2);
      if (last && turn + 1 == turns_) return;
      expand_halo<kRelu>(p_, last ? 0 : (c + 1) * p_.chunk.bytes, x_of(turn + last), planes(1 - buffer), inside_);
    } else {
      copy_async_wait<1>();
      if (p_.flip_x) for_windows(p_, place(turn), InvertedGroup::alone(p_), planes(buffer), c, flip);
      __syncthreads();
      copy_chunk(buffer == 0 ? kBuffers - 1 : buffer - 1);
    }
  }

  const InvertedArgs& p_;
  const int first_, turns_;
  uint32_t inside_ = 0;
  int window_[2] = {};
  int ahead_turn_ = 0, ahead_chunk_ = 0;
};

/// Grid: tiles / turns. Tiles count images (or pairs of images) first, then places.
template <int kRows, int kStride, int kQuads, bool kExpand, bool kRelu>
__global__ void __launch_bounds__(kMaxWarps * 32, inverted_min_blocks<kRows, kQuads>())
    inverted_turns_kernel(const __grid_constant__ InvertedArgs p) {
  for (int i = threadIdx.x * 16; i < p.tiles.chunks * p.chunk.bytes; i += blockDim.x * 16) {
    copy_async(shared_address(inverted_shared) + i, p.chunks + i);  // no kernel writes weights
  }
  copy_async_commit();
  int tile = blockIdx.x * p.turns;
  const int end = min(tile + p.turns, p.tiles.across * p.tiles.down * p.tiles.groups);
#pragma unroll 1
  while (tile < end) {
    const int place = tile / p.tiles.groups, first = tile - place * p.tiles.groups;
    const int turns = min(end - tile, p.tiles.groups - first);
    InvertedTurns<kRows, kStride, kQuads, kExpand, kRelu> of_place(p, place, first, turns);
    wait_for_previous_kernel();
    of_place.run();
    tile += turns;
  }
}

template <int kRows, int kStride, int kQuads>
void launch_inverted_turns(const InvertedArgs& args, CudaStream stream) {
  const bool relu = (!args.has_expand || args.hidden.relu) && args.windows.relu;
  const auto expands = relu ? inverted_turns_kernel<kRows, kStride, kQuads, true, true>
                            : inverted_turns_kernel<kRows, kStride, kQuads, true, false>;
  const auto reads = relu ? inverted_turns_kernel<kRows, kStride, kQuads, false, true>
                          : inverted_turns_kernel<kRows, kStride, kQuads, false, false>;
  const auto kernel = args.has_expand ? expands : reads;
  check_launch("inverted_residual in turns",
               cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, args.shared.bytes));
  launch_overlapped(kernel, dim3(ceil_div(args.tiles.tiles(), args.turns)), dim3(args.tiles.warps * 32),
                    args.shared.bytes, stream, args);
  check_launch("inverted_residual in turns");
}

template <int kQuads>
InvertedLaunch inverted_turns_launch(int stride, int rows) {
  if (rows == 1) return stride == 1 ? launch_inverted_turns<1, 1, kQuads> : launch_inverted_turns<1, 2, kQuads>;
  if (rows == 2) return stride == 1 ? launch_inverted_turns<2, 1, kQuads> : launch_inverted_turns<2, 2, kQuads>;
  if constexpr (inverted_max_rows(kQuads) >= 4) {
    if (rows == 4) return stride == 1 ? launch_inverted_turns<4, 1, kQuads> : launch_inverted_turns<4, 2, kQuads>;
  }
  return nullptr;
}

}  // namespace octet::kernels
