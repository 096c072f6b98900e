// SPDX-License-Identifier: Apache-2.0
// These kernels are bound by memory: a thread takes 16 neighbouring codes where the layout allows, else 4 or 1.
#include "kernels/core/codes.cuh"
#include "kernels/core/launch.cuh"
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
