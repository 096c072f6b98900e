// First layers, up to four channels in four bytes, on tensor cores: a tap of the window is one word, so that eight taps
// make the 32 codes of an mma and no byte of the picture is copied more than once.
//
// A block keeps the weights of its warps in registers and goes through tiles of 16 x 16 output pixels. The tile's part
// of the picture, padding filled in, is copied to shared memory while the tile before it is computed; the words of an
// operand are read from there with any stride or dilation; columns a stride apart lie side by side, so that
// neighbouring pixels read neighbouring words, without bank conflicts. Columns of the weight operand are permuted so
// that a thread ends with eight neighbouring channels of a pixel.
#include <algorithm>

#include "kernels/conv2d_int8/cuda/epilogue.cuh"
#include "kernels/conv2d_int8/cuda/family.h"
#include "kernels/conv2d_int8/cuda/ptx.cuh"
#include "kernels/conv2d_int8/cuda/thread_constants.cuh"
#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"

namespace octet::kernels {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kTile = 16;            // output rows and columns of a tile: the rows of an mma are a row of pixels
constexpr int kWarpChannels = 32;    // four mma side by side
constexpr int kTaps = 8;             // words of an mma's operand
constexpr int kThreadChannels = 8;   // of one pixel
constexpr int kSteps[] = {2, 4, 7};  // mma in a sum that kernels exist for: 3x3, 5x5 and 7x7 windows
constexpr int kMaxTileBytes = 24 * 1024;

struct ImageArgs {
  Conv2dShape g;
  CudaRounding rounding;
  CodeLookup lookup;
  CudaChannelConstants constants;
  const uint4* weight;  ///< [channels / 32][steps][2][32 lanes]: the words of two mma that a lane holds
  const uint32_t* x;
  uint8_t* y;
  uint32_t padding;             ///< four codes of real 0
  int tiles_h, tiles_w, tiles;  ///< of an image and of the batch
  int in_rows, in_columns;      ///< of a tile's part of the picture
  int phase;                    ///< words of the columns that are stride_w apart
  int groups;                   ///< of kWarpChannels channels, in one block: 1 or 2
};

struct TileOrigin {
  int image, oy, ox;
  __device__ TileOrigin(const ImageArgs& a, int tile)
      : image(tile / a.tiles_w / a.tiles_h), oy(tile / a.tiles_w % a.tiles_h * kTile), ox(tile % a.tiles_w * kTile) {}
};

/// Copies four bytes from global to shared memory.
__device__ void copy_word_async(uint32_t shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}

/// Begins to copy a tile's part of the picture to `shared`.
__device__ void fetch_tile(const ImageArgs& a, int tile, uint32_t* shared) {
  const TileOrigin at(a, tile);
  const int warp = threadIdx.x / 32, pitch = a.phase * a.g.stride_w;
  const int top = at.oy * a.g.stride_h - a.g.pad_h, left = at.ox * a.g.stride_w - a.g.pad_w;
  const uint32_t* image = a.x + static_cast<ptrdiff_t>(at.image) * a.g.in_h * a.g.in_w;
  for (int column = threadIdx.x % 32; column < a.in_columns; column += 32) {
    const int ix = left + column;
    const bool inside = ix >= 0 && ix < a.g.in_w;
    uint32_t* to = shared + warp * pitch + column % a.g.stride_w * a.phase + column / a.g.stride_w;
    for (int row = warp; row < a.in_rows; row += kWarps, to += kWarps * pitch) {
      const int iy = top + row;
      if (inside && iy >= 0 && iy < a.g.in_h) {
        copy_word_async(shared_address(to), image + iy * a.g.in_w + ix);
      } else {
        *to = a.padding;
      }
    }
  }
  copy_async_commit();
}

/// Where this lane's words of each mma operand lie, in words from the word of a pixel's first tap.
template <int kSteps>
struct TapOffsets {
  int low[kSteps], high[kSteps];

  __device__ TapOffsets(const ImageArgs& a, int lane) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      low[step] = of_tap(a, step * kTaps + lane % 4), high[step] = of_tap(a, step * kTaps + lane % 4 + 4);
    }
  }
  /// Taps past the last have weight 0 and may read anything.
  __device__ static int of_tap(const ImageArgs& a, int tap) {
    if (tap >= a.g.kernel_h * a.g.kernel_w) return 0;
    const int row = tap / a.g.kernel_w * a.g.dilation_h, column = tap % a.g.kernel_w * a.g.dilation_w;
    return (row * a.g.stride_w + column % a.g.stride_w) * a.phase + column / a.g.stride_w;
  }
};

using Constants = ThreadConstants<kThreadChannels>;

/// Writes the thread's channels of one pixel: columns 2 half and 2 half + 1 of its sums.
__device__ void store_pixel(const ImageArgs& a, const Constants& c, const int32_t (&sum)[4][4], int half,
                            ptrdiff_t pixel, int k) {
  int32_t code[kThreadChannels];
#pragma unroll
  for (int i = 0; i < kThreadChannels; ++i) {
    code[i] = a.rounding(rescale(sum[i / 2][2 * half + i % 2], c.multiplier[i], c.bias[i]));
  }
  uint2 codes = {pack_codes(code[0], code[1], code[2], code[3]), pack_codes(code[4], code[5], code[6], code[7])};
  if (a.lookup.wanted()) codes = {a.lookup.word(codes.x), a.lookup.word(codes.y)};
  // Channels past the last are lanes behind it, which may hold anything.
  if (k < a.g.out_c) *reinterpret_cast<uint2*>(a.y + pixel * a.g.out_stride + k) = codes;
}

template <int kSteps, bool kSigned>
__global__ void __launch_bounds__(kThreads, 3) image_conv_kernel(ImageArgs a) {
  extern __shared__ uint32_t tiles[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int group = blockIdx.y * a.groups + warp % a.groups, warps = kWarps / a.groups;
  const int k = group * kWarpChannels + lane % 4 * kThreadChannels;
  const int pitch = a.phase * a.g.stride_w, tile_words = a.in_rows * pitch;

  uint4 weight[kSteps][2];
#pragma unroll
  for (int i = 0; i < 2 * kSteps; ++i) weight[i / 2][i % 2] = __ldg(a.weight + (group * 2 * kSteps + i) * 32 + lane);
  const Constants constants(a.constants, k);
  const TapOffsets<kSteps> offsets(a, lane);
  wait_for_previous_kernel();
  int tile = blockIdx.x;
  fetch_tile(a, tile, tiles);

  for (int buffer = 0; tile < a.tiles; tile += gridDim.x, buffer ^= 1) {
    copy_async_wait<0>();
    __syncthreads();  // this tile is here, and nobody reads the other buffer any more
    if (tile + gridDim.x < a.tiles) fetch_tile(a, tile + gridDim.x, tiles + (buffer ^ 1) * tile_words);
    const TileOrigin at(a, tile);
    for (int row = warp / a.groups; row < kTile && at.oy + row < a.g.out_h; row += warps) {
      int32_t sum[4][4];
#pragma unroll
      for (int i = 0; i < 16; ++i) sum[i / 4][i % 4] = constants.init[i / 4 * 2 + i % 2];
      // Pixels of the operand's rows lane / 4 and 8 + lane / 4.
      const uint32_t* first = tiles + buffer * tile_words + row * a.g.stride_h * pitch + lane / 4;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const uint32_t *low = first + offsets.low[step], *high = first + offsets.high[step];
        const uint32_t codes[4] = {low[0], low[8], high[0], high[8]};
        const uint4 w01 = weight[step][0], w23 = weight[step][1];
        multiply_add<kSigned>(sum[0], codes, w01.x, w01.y);
        multiply_add<kSigned>(sum[1], codes, w01.z, w01.w);
        multiply_add<kSigned>(sum[2], codes, w23.x, w23.y);
        multiply_add<kSigned>(sum[3], codes, w23.z, w23.w);
      }
      const ptrdiff_t pixel = (static_cast<ptrdiff_t>(at.image) * a.g.out_h + at.oy + row) * a.g.out_w;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int ox = at.ox + lane / 4 + 8 * half;
        if (ox < a.g.out_w) store_pixel(a, constants, sum, half, pixel + ox, k);
      }
    }
  }
}

int tile_side(int stride, int kernel, int dilation) { return (kTile - 1) * stride + (kernel - 1) * dilation + 1; }

int phase_words(const Conv2dShape& g) {
  return blocks_for(tile_side(g.stride_w, g.kernel_w, g.dilation_w), g.stride_w);
}

size_t tile_bytes(const Conv2dShape& g) {
  return sizeof(uint32_t) * tile_side(g.stride_h, g.kernel_h, g.dilation_h) * phase_words(g) * g.stride_w;
}

/// The index of the smallest kernel that holds the window, or -1.
int steps_index(const Conv2dShape& g) {
  for (int i = 0; i < 3; ++i) {
    if (g.kernel_h * g.kernel_w <= kSteps[i] * kTaps) return i;
  }
  return -1;
}

void choices(const CudaConvProblem& problem, std::vector<CudaConv2d>& found) {
  const Conv2dShape& g = problem.shape;
  const Conv2dParams& p = problem.params;
  if (g.in_c > 4 || g.in_stride != 4 || g.groups != 1 || g.out_stride % kThreadChannels != 0 || p.y.float_output ||
      p.has_residual || steps_index(g) < 0 || tile_bytes(g) > kMaxTileBytes) {
    return;
  }
  found.push_back({.name = "mma_image_" + std::to_string(kSteps[steps_index(g)] * kTaps)});
}

std::vector<uint8_t> pack(const CudaConv2d&, const Conv2dShape& g, const Conv2dParams& p, const Conv2dWeights& w) {
  const int channels = cuda_round_up(g.out_c, 2 * kWarpChannels), steps = kSteps[steps_index(g)];
  const int taps = g.kernel_h * g.kernel_w;
  std::vector<uint8_t> packed =
      cuda_pack_constants(g, p, w, channels, static_cast<size_t>(channels) * steps * kTaps * sizeof(uint32_t));
  uint8_t* weight = packed.data() + cuda_constants_bytes(channels);
  for (int k = 0; k < g.out_c; ++k) {
    // Channel 8 t + 2 j + e of a warp is column 2 t + e of its mma j; lane 4 column + t' holds words t' and t' + 4.
    const int own = k % kWarpChannels, mma = own % kThreadChannels / 2, column = own / kThreadChannels * 2 + own % 2;
    for (int tap = 0; tap < taps; ++tap) {
      const int step = tap / kTaps, word = tap % kTaps, lane = column * 4 + word % 4;
      const size_t vector = (static_cast<size_t>(k / kWarpChannels * steps + step) * 2 + mma / 2) * 32 + lane;
      for (int c = 0; c < g.in_c; ++c) {
        weight[vector * sizeof(uint4) + (mma % 2 * 2 + word / 4) * 4 + c] =
            static_cast<uint8_t>(w.weight[(static_cast<ptrdiff_t>(k) * taps + tap) * g.in_c + c]);
      }
    }
  }
  return packed;
}

using Kernel = void (*)(ImageArgs);
const Kernel kKernels[3][2] = {{image_conv_kernel<kSteps[0], false>, image_conv_kernel<kSteps[0], true>},
                               {image_conv_kernel<kSteps[1], false>, image_conv_kernel<kSteps[1], true>},
                               {image_conv_kernel<kSteps[2], false>, image_conv_kernel<kSteps[2], true>}};

void launch(const CudaConv2d&, const Conv2dShape& g, const Conv2dParams& p, const CudaConv2dData& data,
            CudaStream stream) {
  const int channels = cuda_round_up(g.out_c, 2 * kWarpChannels);
  const uint8_t* packed = static_cast<const uint8_t*>(data.packed);
  const int tiles_h = blocks_for(g.out_h, kTile), tiles_w = blocks_for(g.out_w, kTile);
  const int tiles = data.images * tiles_h * tiles_w;
  // Where tiles are too few for all multiprocessors, a block takes fewer channels of one.
  const int groups = g.out_c > kWarpChannels && static_cast<unsigned>(tiles) >= multiprocessors() ? 2 : 1;
  const ImageArgs args{g,
                       CudaEpilogue(p).rounding,
                       CodeLookup(data),
                       cuda_channel_constants(packed, channels),
                       reinterpret_cast<const uint4*>(packed + cuda_constants_bytes(channels)),
                       static_cast<const uint32_t*>(data.x),
                       static_cast<uint8_t*>(data.y),
                       (p.x.zero_point & 0xFF) * 0x01010101u,
                       tiles_h,
                       tiles_w,
                       tiles,
                       tile_side(g.stride_h, g.kernel_h, g.dilation_h),
                       tile_side(g.stride_w, g.kernel_w, g.dilation_w),
                       phase_words(g),
                       groups};
  const Kernel kernel = kKernels[steps_index(g)][p.x.is_signed];
  const size_t shared = 2 * tile_bytes(g);
  const unsigned columns = blocks_for(g.out_c, groups * kWarpChannels);
  const unsigned rows = std::max(1u, resident_blocks(kernel, kThreads, shared) / columns);
  launch_overlapped(kernel, dim3(std::min<unsigned>(args.tiles, rows), columns), kThreads, shared, stream, args);
  check_launch("first-layer convolution");
}

}  // namespace

const CudaConvFamily& cuda_image_family() {
  static constexpr CudaConvFamily family{choices, pack, nullptr, launch};
  return family;
}

}  // namespace octet::kernels
