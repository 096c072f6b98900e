// SPDX-License-Identifier: Apache-2.0
// These kernels are bound by memory: a thread takes 16 neighbouring codes where the layout allows, else 4 or 1.
#include <algorithm>

#include "kernels/core/codes.cuh"
#include "kernels/core/launch.cuh"
#include "kernels/operators/channel_lookup.h"
#include "kernels/operators/elementwise.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;

/// float(xq - zx) * multiplier
struct Requantize {
  UnsignedEdge x;
  float multiplier;
  static constexpr const char* kName = "requantize";
  static constexpr bool kReadsOther = false;

  __device__ float operator()(uint32_t x_word, uint32_t, int lane, int) const {
    return x.centred(x_word, lane) * multiplier;
  }
  __device__ uint32_t other_flip() const { return 0; }
};

/// fma(float(oq - zo), other_multiplier, float(xq - zx) * x_multiplier)
struct Add {
  UnsignedEdge x, other;
  float x_multiplier, other_multiplier;
  static constexpr const char* kName = "add";
  static constexpr bool kReadsOther = true;

  __device__ float operator()(uint32_t x_word, uint32_t other_word, int lane, int) const {
    return fmaf(other.centred(other_word, lane), other_multiplier, x.centred(x_word, lane) * x_multiplier);
  }
  __device__ uint32_t other_flip() const { return other.flip; }
};

/// float((xq - zx) * (oq - zo)) * multiplier; float32 holds the product of the codes exactly.
struct Mul {
  UnsignedEdge x, other;
  float multiplier;
  static constexpr const char* kName = "mul";
  static constexpr bool kReadsOther = true;

  __device__ float operator()(uint32_t x_word, uint32_t other_word, int lane, int) const {
    // + 0, so that 0 times a negative code is +0, as for integers.
    return fmaf(x.centred(x_word, lane), other.centred(other_word, lane), 0.0f) * multiplier;
  }
  __device__ uint32_t other_flip() const { return other.flip; }
};

/// float(xq - zx) * (xq < zx ? slopes[channel] : multiplier)
struct Prelu {
  UnsignedEdge x;
  float multiplier;
  const float* slopes;  ///< for every channel that a thread may load
  static constexpr const char* kName = "prelu";
  static constexpr bool kReadsOther = false;

  __device__ float operator()(uint32_t x_word, uint32_t, int lane, int channel) const {
    const float value = x.centred(x_word, lane);
    return value * (value < 0 ? __ldg(slopes + channel) : multiplier);
  }
  __device__ uint32_t other_flip() const { return 0; }
};

struct ElementwiseArgs {
  unsigned threads, vectors;  ///< vectors of codes in all, and in one pixel
  int channels;
  unsigned sharing;  ///< pixels of x that share one pixel of other
  ptrdiff_t x_stride, other_stride, y_stride;
  CudaRounding rounding;
  bool float_output;
  const uint8_t* x;
  const uint8_t* other;
  uint8_t* y;
};

template <int kCodes, typename Op>
__global__ void __launch_bounds__(kThreads) elementwise_kernel(ElementwiseArgs a, Op op) {
  wait_for_previous_kernel();
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= a.threads) return;
  const ptrdiff_t pixel = thread / a.vectors;
  const int channel = thread % a.vectors * kCodes;
  using Vector = CodeVector<kCodes>;
  const Vector x = Vector::load(a.x + pixel * a.x_stride + channel);
  Vector other = {};
  if constexpr (Op::kReadsOther) {
    const ptrdiff_t other_pixel = thread / a.vectors / a.sharing;
    other = Vector::load(a.other + other_pixel * a.other_stride + channel);
  }

  Vector y;
  for (int w = 0; w < Vector::kWords; ++w) {
    int32_t code[4] = {};
#pragma unroll
    for (int lane = 0; lane < 4 && lane < kCodes; ++lane) {
      const float t = op(x.word[w] ^ op.x.flip, other.word[w] ^ op.other_flip(), lane, channel + 4 * w + lane);
      if (kCodes == 1 && a.float_output) {
        reinterpret_cast<float*>(a.y)[pixel * a.y_stride + channel] = t;
        return;
      }
      code[lane] = a.rounding(t);
    }
    y.word[w] = pack_codes(code[0], code[1], code[2], code[3]);
  }
  y.store(a.y + pixel * a.y_stride + channel, a.channels - channel);
}

template <typename Op>
void launch(const ElementwiseShape& shape, const CodeOutput& out, const CudaElementwiseData& data, const Op& op,
            CudaStream stream) {
  const uintptr_t other = Op::kReadsOther ? address(data.other) : 0;
  const uintptr_t other_stride = Op::kReadsOther ? shape.other_stride : 0;
  const int codes = out.float_output
                        ? 1
                        : codes_per_thread({address(data.x), address(data.y), other, uintptr_t(shape.x_stride),
                                            uintptr_t(shape.y_stride), other_stride});
  const unsigned vectors = blocks_for(shape.channels, codes);
  const long pixels = static_cast<long>(data.images) * shape.pixels;
  const ElementwiseArgs args{thread_count(pixels * vectors, "elementwise"),
                             vectors,
                             shape.channels,
                             shape.other_is_pixel ? static_cast<unsigned>(shape.pixels) : 1u,
                             shape.x_stride,
                             shape.other_stride,
                             shape.y_stride,
                             CudaRounding(out),
                             out.float_output,
                             static_cast<const uint8_t*>(data.x),
                             static_cast<const uint8_t*>(data.other),
                             static_cast<uint8_t*>(data.y)};
  const unsigned blocks = blocks_for(args.threads, kThreads);
  const auto kernel = codes == 16  ? elementwise_kernel<16, Op>
                      : codes == 4 ? elementwise_kernel<4, Op>
                                   : elementwise_kernel<1, Op>;
  launch_overlapped(kernel, blocks, kThreads, 0, stream, args, op);
  check_launch(Op::kName);
}

}  // namespace

void cuda_requantize_int8(const ElementwiseShape& shape, const RequantizeParams& params,
                          const CudaElementwiseData& data, CudaStream stream) {
  launch(shape, params.y, data, Requantize{UnsignedEdge(params.x), params.multiplier}, stream);
}

void cuda_add_int8(const ElementwiseShape& shape, const AddParams& params, const CudaElementwiseData& data,
                   CudaStream stream) {
  const Add op{UnsignedEdge(params.x), UnsignedEdge(params.other), params.x_multiplier, params.other_multiplier};
  launch(shape, params.y, data, op, stream);
}

void cuda_mul_int8(const ElementwiseShape& shape, const MulParams& params, const CudaElementwiseData& data,
                   CudaStream stream) {
  launch(shape, params.y, data, Mul{UnsignedEdge(params.x), UnsignedEdge(params.other), params.multiplier}, stream);
}

void cuda_prelu_int8(const ElementwiseShape& shape, const PreluParams& params, const float* slopes,
                     const CudaElementwiseData& data, CudaStream stream) {
  launch(shape, params.y, data, Prelu{UnsignedEdge(params.x), params.multiplier, slopes}, stream);
}

namespace {

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

/// A thread computes one result.
__global__ void rescale_sums_kernel(RescaleSumsShape shape, CudaRounding rounding, bool float_output,
                                    const int32_t* __restrict__ sums, const float* __restrict__ multiplier,
                                    const float* __restrict__ bias, void* __restrict__ y) {
  const long index = static_cast<long>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= shape.rows * shape.channels) return;
  const long row = index / shape.channels;
  const int k = static_cast<int>(index % shape.channels);
  const float t = rescale(sums[row * shape.sum_stride + k], multiplier[k], bias[k]);
  store_result(t, rounding, float_output, y, row * shape.out_stride + k);
}

}  // namespace

void cuda_rescale_sums(const RescaleSumsShape& shape, const CodeOutput& out, const int32_t* sums,
                       const float* multiplier, const float* bias, void* y, CudaStream stream) {
  const unsigned blocks = blocks_for(shape.rows * shape.channels, kThreads);
  rescale_sums_kernel<<<blocks, kThreads, 0, stream>>>(shape, CudaRounding(out), out.float_output, sums, multiplier,
                                                       bias, y);
  check_launch("rescale_sums");
}

}  // namespace octet::kernels
