// SPDX-License-Identifier: Apache-2.0
// A convolution as a product of matrices whose rows the GPU's im2col loads gather, with the templates of cutlass/conv
// for Hopper.
#pragma once

// These come first, because the headers of cutlass/conv rely on them.
#include <cute/tensor.hpp>
#include <cutlass/kernel_hardware_info.hpp>

#include <cutlass/conv/collective/collective_builder.hpp>
#include <cutlass/conv/convnd_problem_shape.hpp>
#include <cutlass/conv/device/conv_universal_adapter.hpp>
#include <cutlass/conv/dispatch_policy.hpp>
#include <cutlass/conv/kernel/conv_universal.hpp>

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

}  // namespace octet::cutlass_tiles
