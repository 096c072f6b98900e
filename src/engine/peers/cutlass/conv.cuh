// SPDX-License-Identifier: Apache-2.0
// A convolution as a product of matrices whose rows the GPU's im2col loads gather, for Hopper: with the templates of
// cutlass/conv (implicit GEMM), and with their loads in the persistent kernel of CUTLASS's GEMMs. CUTLASS 4.2 itself
// has convolutions for Hopper only with one group of warps that multiplies and a block that ends with its tile.
#pragma once

// These come first, because the headers of cutlass/conv rely on them.
#include <cute/tensor.hpp>
#include <cutlass/kernel_hardware_info.hpp>

#include <cutlass/conv/collective/collective_builder.hpp>
#include <cutlass/conv/convnd_problem_shape.hpp>
#include <cutlass/conv/device/conv_universal_adapter.hpp>
#include <cutlass/conv/dispatch_policy.hpp>
#include <cutlass/conv/kernel/conv_universal.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "src/cuda/device.h"
#include "src/engine/peers/cutlass/epilogue.cuh"

namespace octet::cutlass_tiles {

/// Padding is read as 0. CUTLASS has one schedule for this: one group of warps multiplies, and a block ends with its
/// tile, so `stages` determines how many blocks share a multiprocessor.
template <int m, int n, int k, int stages, int blocks, bool residual>
void implicit_gemm(const FusedConvSpec& spec, const FusedConvTensors& t, CudaStream stream) {
  using Tile = cute::Shape<cute::Int<m>, cute::Int<n>, cute::Shape<cute::Int<k>>>;
  using Layout = cutlass::layout::TensorNHWC;
  using End = Epilogue<Tile, Cluster<blocks>, Layout, cutlass::epilogue::TmaWarpSpecialized, residual>;
  using Main = typename cutlass::conv::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, cutlass::conv::Operator::kFprop, int8_t, Layout, 16, int8_t,
      Layout, 16, int32_t, Tile, Cluster<blocks>, cutlass::conv::collective::StageCount<stages>,
      cutlass::conv::KernelImplicitTmaWarpSpecializedSm90>::CollectiveOp;
  using Problem = cutlass::conv::ConvProblemShape<cutlass::conv::Operator::kFprop, 2>;
  using Kernel = cutlass::conv::kernel::ConvUniversal<Problem, Main, End>;

  const kernels::Conv2dShape& s = spec.shape;
  const Problem problem(cutlass::conv::Mode::kCrossCorrelation, {spec.images, s.in_h, s.in_w, s.in_c},
                        {s.out_c, s.kernel_h, s.kernel_w, s.in_c}, {s.pad_h, s.pad_w}, {s.pad_h, s.pad_w},
                        {s.stride_h, s.stride_w}, {s.dilation_h, s.dilation_w}, 1);
  const int64_t pixel = s.out_c, row = pixel * s.out_w, image = row * s.out_h;
  const typename Kernel::StrideD by_output = {{pixel, row, image}, cute::_1{}, cute::_0{}};
  launch<cutlass::conv::device::ConvUniversalAdapter<Kernel>>(
      {cutlass::gemm::GemmUniversalMode::kGemm,
       problem,
       {codes(t.x), codes(t.weight)},
       {Rule<Tile, residual>::arguments(spec, t), codes(t.residual), by_output, static_cast<int8_t*>(t.y), by_output}},
      stream);
}

/// `blocks` is the number of blocks of a cluster.
template <int m, int n, int k, int stages, int blocks>
CutlassKernel implicit_gemm_kernel() {
  return {tile_name("implicit_gemm", m, n, k, blocks), false,
          [](const FusedConvSpec& spec, const FusedConvTensors& tensors, CudaStream stream) {
            (spec.residual ? implicit_gemm<m, n, k, stages, blocks, true>
                           : implicit_gemm<m, n, k, stages, blocks, false>)(spec, tensors, stream);
          }};
}

/// Adapts the part of a kernel that loads and multiplies for a convolution to what kernels of GEMM call: they pass the
/// size of the matrices besides the convolution's, and a batch of one matrix.
template <class Conv>
struct AsGemm : Conv {
  using Problem = typename Conv::ProblemShape;
  using Params = typename Conv::Params;
  using StrideA = cute::Stride<int64_t, cute::_1, cute::_0>;  ///< the kernel requires it, but does not use it
  using StrideB = StrideA;
  static constexpr int NumProducerThreadEvents = 1;

  struct Arguments {
    const int8_t *x, *weight;
    Problem problem;
  };

  template <class Shape>
  static Params to_underlying_arguments(const Shape&, const Arguments& arguments, void* workspace) {
    return Conv::to_underlying_arguments(arguments.problem, {arguments.x, arguments.weight}, workspace);
  }

  template <class Shape>
  static bool can_implement(const Shape&, const Arguments& arguments) {
    return Conv::can_implement(arguments.problem, typename Conv::Arguments{arguments.x, arguments.weight});
  }

  template <class Shape>
  CUTLASS_DEVICE auto load_init(const Shape& shape, const Params& params) {
    const auto with_batch = [](const auto& tiles) {
      return cute::make_tensor(tiles.data(), cute::append<5>(tiles.layout(), cute::Layout<cute::_1, cute::_0>{}));
    };
    const auto tiles = Conv::load_init(shape, params);
    return cute::make_tuple(with_batch(cute::get<0>(tiles)), with_batch(cute::get<1>(tiles)));
  }

  template <class Pixels, class Weights, class... More>
  CUTLASS_DEVICE void load(const Params& params, typename Conv::MainloopPipeline pipeline,
                           typename Conv::PipelineState state, const cute::tuple<Pixels, Weights>& tiles,
                           More&&... more) {
    const auto without_batch = [](const auto& of) { return of(cute::_, cute::_, cute::_, cute::_, 0); };
    Conv::load(params, pipeline, state,
               cute::make_tuple(without_batch(cute::get<0>(tiles)), without_batch(cute::get<1>(tiles))), more...);
  }
};

/// Padding is read as 0.
template <int m, int n, int k, int blocks, bool residual>
void persistent_conv(const FusedConvSpec& spec, const FusedConvTensors& t, CudaStream stream) {
  constexpr auto kForward = cutlass::conv::Operator::kFprop;
  using Tile = cute::Shape<cute::Int<m>, cute::Int<n>, cute::Shape<cute::Int<k>>>;
  using Layout = cutlass::layout::TensorNHWC;
  using End =
      Epilogue<Tile, Cluster<blocks>, cutlass::layout::RowMajor, cutlass::epilogue::TmaWarpSpecialized, residual>;
  using Basic = typename cutlass::conv::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, kForward, int8_t, Layout, 16, int8_t, Layout, 16, int32_t,
      Tile, Cluster<blocks>,
      cutlass::conv::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename End::SharedStorage))>,
      cutlass::conv::KernelImplicitTmaWarpSpecializedSm90>::CollectiveOp;
  using Policy = cutlass::conv::MainloopSm90TmaGmmaWarpSpecializedImplicitGemm<
      kForward, Basic::DispatchPolicy::Stages, 2, Cluster<blocks>, cutlass::gemm::KernelTmaWarpSpecializedPingpong>;
  namespace collective = cutlass::conv::collective;
  using Main = AsGemm<collective::CollectiveConv<
      Policy, Tile, int8_t, int8_t, typename Basic::TiledMma,
      collective::detail::Sm90ImplicitGemmTileTraits<typename Basic::GmemTiledCopyA, typename Basic::SmemLayoutA>,
      collective::detail::Sm90ImplicitGemmTileTraits<typename Basic::GmemTiledCopyB, typename Basic::SmemLayoutB>>>;
  using Taps = cute::Shape<int, int, int>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, Taps, int>, Main, End>;

  const kernels::Conv2dShape& s = spec.shape;
  const typename Main::Problem problem(cutlass::conv::Mode::kCrossCorrelation, {spec.images, s.in_h, s.in_w, s.in_c},
                                       {s.out_c, s.kernel_h, s.kernel_w, s.in_c}, {s.pad_h, s.pad_w},
                                       {s.pad_h, s.pad_w}, {s.stride_h, s.stride_w}, {s.dilation_h, s.dilation_w}, 1);
  const int pixels = spec.images * s.out_h * s.out_w;
  const typename Kernel::StrideD by_output = {s.out_c, cute::_1{}, 0};
  launch<cutlass::conv::device::ConvUniversalAdapter<Kernel>>(
      {cutlass::gemm::GemmUniversalMode::kGemm,
       {pixels, s.out_c, {s.in_c, s.kernel_w, s.kernel_h}, 1},
       {codes(t.x), codes(t.weight), problem},
       {Rule<Tile, residual>::arguments(spec, t), codes(t.residual), by_output, static_cast<int8_t*>(t.y), by_output},
       {0, gpu_status().multiprocessors}},
      stream);
}

/// `blocks` is the number of blocks of a cluster.
template <int m, int n, int k, int blocks>
CutlassKernel persistent_conv_kernel() {
  return {tile_name("persistent_implicit_gemm", m, n, k, blocks), false,
          [](const FusedConvSpec& spec, const FusedConvTensors& tensors, CudaStream stream) {
            (spec.residual ? persistent_conv<m, n, k, blocks, true>
                           : persistent_conv<m, n, k, blocks, false>)(spec, tensors, stream);
          }};
}

}  // namespace octet::cutlass_tiles
