#include "kernels/conv2d_int8/cuda/depthwise.cuh"

namespace octet::kernels {

bool depthwise_fits(const CudaConvProblem& problem, int window) {
  const Conv2dShape& g = problem.shape;
  const bool depthwise = g.groups == g.in_c && g.out_c == g.in_c;
  const bool square = g.kernel_h == window && g.kernel_w == window && g.dilation_h == 1 && g.dilation_w == 1 &&
                      g.stride_h == g.stride_w && g.stride_h <= 2;
  const bool words = g.in_stride % kQuad == 0 && g.out_stride % kQuad == 0;
  return depthwise && square && words && !problem.params.y.float_output && !problem.params.has_residual;
}

std::vector<uint8_t> depthwise_pack(const Conv2dShape& g, const Conv2dParams& p, const Conv2dWeights& w) {
  const int window = g.kernel_h, channels = cuda_round_up(g.out_c, kQuad), words = (window + 3) / 4;
  std::vector<uint8_t> packed =
      cuda_pack_constants(g, p, w, channels, static_cast<size_t>(window) * words * channels * sizeof(uint32_t));
  uint8_t* weight = packed.data() + cuda_constants_bytes(channels);
  for (int k = 0; k < g.out_c; ++k) {
    for (int r = 0; r < window; ++r) {
      for (int s = 0; s < window; ++s) {
        weight[((static_cast<size_t>(s) * words + r / 4) * channels + k) * sizeof(uint32_t) + r % 4] =
            static_cast<uint8_t>(w.weight[(static_cast<ptrdiff_t>(k) * window + r) * window + s]);
      }
    }
  }
  return packed;
}

void launch_depthwise(DepthwiseKernel kernel, int rows, int columns, const Conv2dShape& g, const Conv2dParams& p,
                      const CudaConv2dData& data, CudaStream stream) {
  const uint8_t* packed = static_cast<const uint8_t*>(data.packed);
  const int channels = cuda_round_up(g.out_c, kQuad);
  const unsigned quads = channels / kQuad, tiles_h = blocks_for(g.out_h, rows), tiles_w = blocks_for(g.out_w, columns);
  const DepthwiseArgs args{
      g,
      CudaEpilogue(p).rounding,
      CodeLookup(data),
      cuda_channel_constants(packed, channels),
      reinterpret_cast<const uint4*>(packed + cuda_constants_bytes(channels)),
      static_cast<const uint8_t*>(data.x),
      static_cast<uint8_t*>(data.y),
      thread_count(static_cast<long>(data.images) * tiles_h * tiles_w * quads, "depthwise convolution"),
      quads,
      tiles_h,
      tiles_w,
      (p.x.zero_point & 0xFF) * 0x01010101u};
  launch_overlapped(kernel, blocks_for(args.threads, kDepthwiseThreads), kDepthwiseThreads, 0, stream, args);
  check_launch("depthwise convolution");
}

}  // namespace octet::kernels
