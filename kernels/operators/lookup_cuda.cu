// SPDX-License-Identifier: Apache-2.0
// These kernels are bound by memory: a thread takes 16 neighbouring codes where the layout allows, else 4 or 1.
#include "kernels/operators/lookup.h"

#include <algorithm>

#include "kernels/core/codes.cuh"
#include "kernels/core/launch.cuh"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;

/// The table comes with the launch, and is copied to shared memory, where each lane can read its own entry.
template <int kCodes>
__global__ void __launch_bounds__(kThreads)
    lookup_kernel(const __grid_constant__ LookupTable table, const uint8_t* x, unsigned threads, uint8_t* y) {
  static_assert(kThreads == 256);  // each thread copies one entry of the table
  __shared__ uint8_t bytes[kThreads];
  bytes[threadIdx.x] = table.byte[threadIdx.x];
  __syncthreads();
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= threads) return;
  wait_for_previous_kernel();
  const ptrdiff_t at = static_cast<ptrdiff_t>(thread) * kCodes;
  using Vector = CodeVector<kCodes>;
  Vector codes = Vector::load(x + at);
#pragma unroll
  for (uint32_t& word : codes.word) {
    word = bytes[word & 255] | bytes[word >> 8 & 255] << 8 | bytes[word >> 16 & 255] << 16 |
           static_cast<uint32_t>(bytes[word >> 24]) << 24;
  }
  codes.store(y + at, kCodes);
}

}  // namespace

void cuda_lookup_int8(const LookupTable& table, const uint8_t* x, long count, uint8_t* y, CudaStream stream) {
  const int codes = codes_per_thread({address(x), address(y), uintptr_t(count)});
  const unsigned threads = thread_count(count / codes, "lookup");
  const auto kernel = codes == 16 ? lookup_kernel<16> : codes == 4 ? lookup_kernel<4> : lookup_kernel<1>;
  launch_overlapped(kernel, blocks_for(threads, kThreads), kThreads, 0, stream, table, x, threads, y);
  check_launch("lookup");
}

namespace {

constexpr int kTableThreads = 1024;  // share a block's tables
constexpr int kPixelsAhead = 4;      // loads in flight of a thread

/// Returns the word with the four looked-up codes; tables: ChannelLookupPlan's.
__device__ __forceinline__ uint32_t look_up_channels(const uint8_t* tables, uint32_t codes, int lane) {
  uint32_t found[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) found[i] = tables[ChannelLookupPlan::table_byte(i, codes >> 8 * i & 255, lane)];
  return pack_codes(found[0], found[1], found[2], found[3]);
}

/// Grid: (blocks that share the pixels, chunks of channels).
__global__ void __launch_bounds__(kTableThreads, 2)
    channel_lookup_kernel(const uint8_t* __restrict__ tables, const ChannelLookupPlan plan, const uint8_t* x,
                          uint8_t* y) {
  constexpr int kWarps = kTableThreads / 32, kPieces = 16;  // pieces of 16 bytes of a table
  __shared__ uint32_t entries[ChannelLookupPlan::kTableWords];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, word = plan.word(blockIdx.y, lane);
  for (int i = warp; word >= 0 && i < 4 * kPieces; i += kWarps) {  // no kernel writes tables
    const int channel = i / kPieces, piece = i % kPieces;
    const uint4 four = __ldg(reinterpret_cast<const uint4*>(tables + (word * 4 + channel) * 256) + piece);
    entries[ChannelLookupPlan::table_word(channel, piece * 4, lane)] = four.x;
    entries[ChannelLookupPlan::table_word(channel, piece * 4 + 1, lane)] = four.y;
    entries[ChannelLookupPlan::table_word(channel, piece * 4 + 2, lane)] = four.z;
    entries[ChannelLookupPlan::table_word(channel, piece * 4 + 3, lane)] = four.w;
  }
  __syncthreads();
  wait_for_previous_kernel();
  if (word < 0) return;
  const int step = plan.step(gridDim.x * kWarps);
  for (int first = plan.first_pixel(blockIdx.x * kWarps + warp, lane); first < plan.pixels;
       first += kPixelsAhead * step) {
    uint32_t codes[kPixelsAhead];
#pragma unroll
    for (int i = 0; i < kPixelsAhead; ++i) {
      const int pixel = first + i * step;
      if (pixel < plan.pixels) {
        codes[i] = *reinterpret_cast<const uint32_t*>(x + (static_cast<ptrdiff_t>(pixel) * plan.words + word) * 4);
      }
    }
#pragma unroll
    for (int i = 0; i < kPixelsAhead; ++i) {
      const int pixel = first + i * step;
      if (pixel < plan.pixels) {
        *reinterpret_cast<uint32_t*>(y + (static_cast<ptrdiff_t>(pixel) * plan.words + word) * 4) =
            look_up_channels(reinterpret_cast<const uint8_t*>(entries), codes[i], lane);
      }
    }
  }
}

/// For channels and addresses that are no multiples of 4: a thread looks up one code.
__global__ void __launch_bounds__(kThreads) channel_code_lookup_kernel(const uint8_t* __restrict__ tables, int channels,
                                                                       const uint8_t* x, unsigned count, uint8_t* y) {
  const unsigned at = blockIdx.x * kThreads + threadIdx.x;
  if (at >= count) return;
  wait_for_previous_kernel();
  y[at] = __ldg(tables + static_cast<ptrdiff_t>(at % channels) * 256 + x[at]);
}

}  // namespace

void cuda_channel_lookup_int8(const uint8_t* tables, int channels, const uint8_t* x, long count, uint8_t* y,
                              CudaStream stream) {
  const unsigned codes = thread_count(count, "lookup");
  const bool in_words = codes_per_thread({address(x), address(y), uintptr_t(count), uintptr_t(channels)}) >= 4 &&
                        count % channels == 0 && address(tables) % 16 == 0;
  if (in_words) {
    const ChannelLookupPlan plan(channels, static_cast<int>(count / channels));
    const unsigned resident = resident_blocks(channel_lookup_kernel, kTableThreads, 0) / plan.chunks;
    const unsigned useful = blocks_for(plan.pixels, kTableThreads / 32 * plan.pixels_of_warp * 2);
    const dim3 blocks(std::max(1u, std::min(resident, useful)), plan.chunks);
    launch_overlapped(channel_lookup_kernel, blocks, kTableThreads, 0, stream, tables, plan, x, y);
  } else {
    launch_overlapped(channel_code_lookup_kernel, blocks_for(codes, kThreads), kThreads, 0, stream, tables, channels, x,
                      codes, y);
  }
  check_launch("lookup");
}

namespace {

constexpr int kTable = 256;       // entries for one channel
constexpr int kRgbPixels = 4;     // pixels of a thread of quantize_rgb_kernel()
constexpr int kRgbBlocks = 1024;  // enough for any GPU; each block reads the tables once

/// Quantizes any number of channels, a thread for each pixel. Like quantize_rgb_kernel() it begins a network and is
/// launched with <<<>>>, so the next kernel may begin at once (kernels/core/launch.cuh).
__global__ void __launch_bounds__(kThreads)
    quantize_image_kernel(ImageShape shape, long pixels, const uint8_t* __restrict__ tables,
                          const uint8_t* __restrict__ image, uint8_t* __restrict__ codes) {
  let_next_kernel_begin();
  const long pixel = static_cast<long>(blockIdx.x) * kThreads + threadIdx.x;
  if (pixel >= pixels) return;
  for (int c = 0; c < shape.out_stride; ++c) {
    codes[pixel * shape.out_stride + c] =
        c < shape.channels ? tables[c * kTable + image[pixel * shape.channels + c]] : 0;
  }
}

/// Quantizes three channels to a stride of four, the usual first layer: a thread reads four pixels as three words and
/// writes them as four.
__global__ void __launch_bounds__(kThreads)
    quantize_rgb_kernel(long quads, const uint32_t* __restrict__ tables, const uint32_t* __restrict__ image,
                        uint4* __restrict__ codes) {
  __shared__ uint32_t words[3 * kTable / 4];
  let_next_kernel_begin();
  for (int i = threadIdx.x; i < 3 * kTable / 4; i += kThreads) words[i] = tables[i];
  __syncthreads();
  const uint8_t* table = reinterpret_cast<const uint8_t*>(words);
  const auto code = [table](uint32_t word, int byte, int channel) -> uint32_t {
    return table[channel * kTable + (word >> 8 * byte & 0xFF)];
  };
  for (long quad = static_cast<long>(blockIdx.x) * kThreads + threadIdx.x; quad < quads;
       quad += static_cast<long>(gridDim.x) * kThreads) {
    const uint32_t a = image[3 * quad], b = image[3 * quad + 1], c = image[3 * quad + 2];
    codes[quad] = {code(a, 0, 0) | code(a, 1, 1) << 8 | code(a, 2, 2) << 16,
                   code(a, 3, 0) | code(b, 0, 1) << 8 | code(b, 1, 2) << 16,
                   code(b, 2, 0) | code(b, 3, 1) << 8 | code(c, 0, 2) << 16,
                   code(c, 1, 0) | code(c, 2, 1) << 8 | code(c, 3, 2) << 16};
  }
}

bool multiple_of(const void* pointer, unsigned bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

void cuda_quantize_image(const ImageShape& shape, long pixels, const uint8_t* tables, const uint8_t* image,
                         uint8_t* codes, CudaStream stream) {
  long done = 0;
  if (shape.channels == 3 && shape.out_stride == 4 && pixels >= kRgbPixels && multiple_of(image, 4) &&
      multiple_of(tables, 4) && multiple_of(codes, 16)) {
    const long quads = pixels / kRgbPixels;
    const unsigned blocks = std::min<unsigned>(blocks_for(quads, kThreads), kRgbBlocks);
    quantize_rgb_kernel<<<blocks, kThreads, 0, stream>>>(quads, reinterpret_cast<const uint32_t*>(tables),
                                                         reinterpret_cast<const uint32_t*>(image),
                                                         reinterpret_cast<uint4*>(codes));
    check_launch("quantize_rgb");
    done = quads * kRgbPixels;
  }
  if (done == pixels) return;
  quantize_image_kernel<<<blocks_for(pixels - done, kThreads), kThreads, 0, stream>>>(
      shape, pixels - done, tables, image + done * shape.channels, codes + done * shape.out_stride);
  check_launch("quantize_image");
}

namespace {

/// A thread looks up one value.
__global__ void look_up_image_kernel(PixelTables tables, long count, const uint8_t* __restrict__ image,
                                     float* __restrict__ out) {
  const long i = static_cast<long>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) out[i] = __ldg(tables.values + i % tables.channels * 256 + image[i]);
}

}  // namespace

void cuda_look_up_image(const PixelTables& tables, long pixels, const uint8_t* image, float* out, CudaStream stream) {
  const long count = pixels * tables.channels;
  look_up_image_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(tables, count, image, out);
  check_launch("look_up_image");
}

}  // namespace octet::kernels
