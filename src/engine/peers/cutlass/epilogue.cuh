// SPDX-License-Identifier: Apache-2.0
// What all kernels of CUTLASS share: octet's rounding rule as an epilogue, a tree of visitors (EVT,
// cutlass/epilogue/fusion) whose leaves load and whose nodes compute on fragments in registers; and launching.
#pragma once

#include <cutlass/cutlass.h>
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp>

#include "kernels/core/cuda.h"
#include "src/engine/peers/operations.h"

namespace octet::cutlass_tiles {

namespace fusion = cutlass::epilogue::fusion;

/// a * b + c with one rounding. CUTLASS's own multiply_add lets the compiler choose between one and two.
template <class T>
struct Fma;
template <int n>
struct Fma<cutlass::Array<float, n>> {
  using Floats = cutlass::Array<float, n>;
  CUTLASS_DEVICE Floats operator()(const Floats& a, const Floats& b, const Floats& c) const {
    Floats result;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < n; ++i) result[i] = __fmaf_rn(a[i], b[i], c[i]);
    return result;
  }
};

struct CodeRange {
  float low, high;
};
/// Clamps before the rounding, which gives the same codes as after it, because the bounds are integers.
template <class T>
struct Clamp {
  using Arguments = CodeRange;
};
template <int n>
struct Clamp<cutlass::Array<float, n>> {
  using Floats = cutlass::Array<float, n>;
  CUTLASS_DEVICE Floats operator()(const Floats& x, const CodeRange& range) const {
    Floats result;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < n; ++i) result[i] = fminf(fmaxf(x[i], range.low), range.high);
    return result;
  }
};

constexpr cutlass::FloatRoundStyle kHalfToEven = cutlass::FloatRoundStyle::round_to_nearest;
template <template <class> class Function, class Out, class... Inputs>
using Node = fusion::Sm90EVT<fusion::Sm90Compute<Function, Out, float, kHalfToEven>, Inputs...>;

/// clamp(fma(residual, residual_multiplier, fma(float(sum), multiplier[k], bias[k]))) as int8.
template <class Tile, bool residual>
struct Rule {
  using PerChannel = fusion::Sm90RowBroadcast<0, Tile, float>;
  using Rescaled = Node<Fma, float, fusion::Sm90AccFetch, PerChannel, PerChannel>;
  using Added = Node<Fma, float, fusion::Sm90SrcFetch<int8_t>, fusion::Sm90ScalarBroadcast<float>, Rescaled>;
  using Tree = Node<Clamp, int8_t, cute::conditional_t<residual, Added, Rescaled>>;

  static typename Tree::Arguments arguments(const FusedConvSpec& spec, const FusedConvTensors& tensors) {
    const typename Rescaled::Arguments rescaled = {{}, {tensors.multiplier}, {tensors.bias}, {}};
    const CodeRange range = {static_cast<float>(spec.clamp_min), static_cast<float>(spec.clamp_max)};
    if constexpr (residual) {
      return {{{}, {{1.0f}, {tensors.residual_multiplier}}, rescaled, {}}, range};
    } else {
      return {rescaled, range};
    }
  }
};

/// `Layout` is that of the residual and of the output.
template <class Tile, class Blocks, class Layout, class Schedule, bool residual>
using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Blocks, cutlass::epilogue::collective::EpilogueTileAuto,
    int32_t, float, cute::conditional_t<residual, int8_t, void>, Layout, 16, int8_t, Layout, 16, Schedule,
    typename Rule<Tile, residual>::Tree>::CollectiveOp;

/// `m` blocks with consecutive pixels share the weights that they load.
template <int m>
using Cluster = cute::Shape<cute::Int<m>, cute::_1, cute::_1>;

inline std::string tile_name(const std::string& kind, int m, int n, int k, int blocks) {
  const std::string cluster = blocks > 1 ? "_cluster" + std::to_string(blocks) : "";
  return kind + "_m" + std::to_string(m) + "n" + std::to_string(n) + "k" + std::to_string(k) + cluster;
}

inline const int8_t* codes(const void* pointer) { return static_cast<const int8_t*>(pointer); }

template <class Kernel>
void launch(const typename Kernel::Arguments& arguments, CudaStream stream) {
  Kernel kernel;
  const auto why = [](cutlass::Status status) { return std::string(": ") + cutlassGetStatusString(status); };
  if (const auto status = Kernel::can_implement(arguments); status != cutlass::Status::kSuccess) {
    throw kernels::LaunchRefused("CUTLASS does not take this shape" + why(status));
  }
  if (const auto status = kernel.initialize(arguments, nullptr, stream); status != cutlass::Status::kSuccess) {
    throw kernels::LaunchRefused("CUTLASS's kernel does not start here" + why(status));
  }
  if (const auto status = kernel.run(stream); status != cutlass::Status::kSuccess)
    throw promise_error("launching a kernel of CUTLASS failed" + why(status));
}

}  // namespace octet::cutlass_tiles
