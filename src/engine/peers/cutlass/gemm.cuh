// SPDX-License-Identifier: Apache-2.0
// A 1x1 convolution as a product of matrices, with the templates of cutlass/gemm for Hopper. No file may also include
// conv.cuh, because the header of GEMM's adapter makes convolutions ambiguous.
#pragma once

#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cute/tensor.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "src/cuda/device.h"
#include "src/engine/peers/cutlass/epilogue.cuh"

namespace octet::cutlass_tiles {

struct Pingpong {  ///< two groups of warps, each with a tile of its own: one ends its tile while the other multiplies
  static constexpr const char* kName = "pingpong";
  using Main = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
  using End = cutlass::epilogue::TmaWarpSpecialized;
};
struct Cooperative {  ///< two groups of warps share a tile
  static constexpr const char* kName = "cooperative";
  using Main = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
  using End = cutlass::epilogue::TmaWarpSpecializedCooperative;
};

template <int m, int n, int k, int blocks, class Schedule, bool residual>
void gemm(const FusedConvSpec& spec, const FusedConvTensors& t, CudaStream stream) {
  using Tile = cute::Shape<cute::Int<m>, cute::Int<n>, cute::Int<k>>;
  using RowMajor = cutlass::layout::RowMajor;
  using End = Epilogue<Tile, Cluster<blocks>, RowMajor, typename Schedule::End, residual>;
  using Main = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, int8_t, RowMajor, 16, int8_t, cutlass::layout::ColumnMajor,
      16, int32_t, Tile, Cluster<blocks>,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename End::SharedStorage))>,
      typename Schedule::Main>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Main, End>;

  const kernels::Conv2dShape& s = spec.shape;
  const int pixels = spec.images * s.out_h * s.out_w;
  const typename Kernel::StrideA by_input = {s.in_c, cute::_1{}, 0};
  const typename Kernel::StrideD by_output = {s.out_c, cute::_1{}, 0};
  launch<cutlass::gemm::device::GemmUniversalAdapter<Kernel>>(
      {cutlass::gemm::GemmUniversalMode::kGemm,
       {pixels, s.out_c, s.in_c, 1},
       {codes(t.x), by_input, codes(t.weight), by_input},
       {Rule<Tile, residual>::arguments(spec, t), codes(t.residual), by_output, static_cast<int8_t*>(t.y), by_output},
       {0, gpu_status().multiprocessors}},
      stream);
}

/// `blocks` is the number of blocks of a cluster.
template <int m, int n, int k, int blocks, class Schedule>
CutlassKernel gemm_kernel() {
  return {tile_name(std::string("gemm_") + Schedule::kName, m, n, k, blocks), true,
          [](const FusedConvSpec& spec, const FusedConvTensors& tensors, CudaStream stream) {
            (spec.residual ? gemm<m, n, k, blocks, Schedule, true>
                           : gemm<m, n, k, blocks, Schedule, false>)(spec, tensors, stream);
          }};
}

}  // namespace octet::cutlass_tiles
