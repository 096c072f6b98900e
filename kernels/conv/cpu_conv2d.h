// SPDX-License-Identifier: Apache-2.0
// int8 convolution on the CPU. Weights are packed once when a network is compiled; run() then computes any range of
// tasks without allocating. Every path gives the bytes of conv2d_int8_reference().
//
// The contract with the cpu engine:
//  - Activations are uint8 everywhere. The engine shifts signed tensors by +128 beforehand (codes, zero points,
//    clamps), so is_signed of Conv2dParams::x, y and residual is false here; create() refuses anything else.
//  - Tensors are NHWC with any pixel stride >= channels; images of a batch follow each other at height * width *
//    stride. The engine uses cpu_channel_stride(channels).
//  - The lanes between channels and stride are read and may hold any initialized bytes; they never affect a result.
//  - Up to kCpuReadSlack bytes behind the last pixel of x are read too, and must belong to the caller.
//  - Exactly out_c channels of each pixel of y are written and the lanes behind them keep their bytes, so that a
//    convolution can write into a slice of a wider tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/conv/conv2d.h"

namespace octet::kernels {

struct LookupTable;

/// Instruction sets. avx_vnni is AVX2 with vpdpbusd, avx512_vnni means AVX-512 F, BW, VL, DQ and VNNI, amx adds tiles
/// and TDPBUSD; neon is what every aarch64 processor has, dotprod (ARMv8.2) adds SDOT, i8mm (ARMv8.6) USMMLA.
enum class CpuIsa { portable, avx2, avx_vnni, avx512_vnni, amx, neon, dotprod, i8mm };

/// The paths of this build, from the fastest to the slowest.
#if defined(__x86_64__)
inline constexpr CpuIsa kCpuIsas[] = {CpuIsa::amx, CpuIsa::avx512_vnni, CpuIsa::avx_vnni, CpuIsa::avx2,
                                      CpuIsa::portable};
#elif defined(__aarch64__)
inline constexpr CpuIsa kCpuIsas[] = {CpuIsa::i8mm, CpuIsa::dotprod, CpuIsa::neon, CpuIsa::portable};
#else
inline constexpr CpuIsa kCpuIsas[] = {CpuIsa::portable};
#endif

/// Returns the instruction set that a path uses for all but convolutions: AMX and AVX-VNNI have no more for these.
constexpr CpuIsa vector_isa(CpuIsa isa) {
  return isa == CpuIsa::amx ? CpuIsa::avx512_vnni : isa == CpuIsa::avx_vnni ? CpuIsa::avx2 : isa;
}

std::string_view cpu_isa_name(CpuIsa isa);  ///< the name in CompileOptions::kernels, such as "avx512_vnni"
bool cpu_isa_available(CpuIsa isa);         ///< whether this processor and operating system can run it
std::vector<CpuIsa> available_cpu_isas();   ///< those of kCpuIsas that are available, in that order
CpuIsa best_cpu_isa();                      ///< the fastest available instruction set

/// Returns the bytes from one pixel to the next in the cpu engine: 4 for up to 4 channels, else a multiple of 16.
constexpr int cpu_channel_stride(int channels) { return channels <= 4 ? 4 : (channels + 15) / 16 * 16; }

/// Bytes behind the last pixel of an input that a kernel may read and ignore.
inline constexpr size_t kCpuReadSlack = 64;

/// The tensors of one run.
struct CpuConv2dBatch {
  int images = 1;
  const uint8_t* x = nullptr;           ///< [images, in_h, in_w, in_stride]
  const uint8_t* residual = nullptr;    ///< [images, out_h, out_w, residual_stride], when has_residual
  void* y = nullptr;                    ///< uint8, or float with float_output: [images, out_h, out_w, out_stride]
  const LookupTable* lookup = nullptr;  ///< if given, y holds table[code]; not with float_output
};

/// One convolution with its packed weights. Several threads may call run() concurrently, each with its own range of
/// tasks and its own workspace.
class CpuConv2d {
 public:
  virtual ~CpuConv2d() = default;

  /// Packs the weights and keeps no pointer to them. Throws Error(usage) when `isa` is not available, and
  /// Error(promise) when shape or params break the contract above.
  static std::unique_ptr<CpuConv2d> create(const Conv2dShape& shape, const Conv2dParams& params,
                                           const Conv2dWeights& weights, CpuIsa isa);

  virtual std::string name() const = 0;        ///< name in reports, such as "conv3x3_avx512_vnni_14x32"
  virtual size_t packed_bytes() const = 0;     ///< bytes of packed weights and per-channel constants
  virtual size_t workspace_bytes() const = 0;  ///< 64-byte aligned scratch that each thread needs; may be 0
  virtual int tasks(int images) const = 0;     ///< number of independent tasks of similar size
  /// Computes tasks [begin, end) of tasks(batch.images).
  virtual void run(const CpuConv2dBatch& batch, int begin, int end, void* workspace) const = 0;
};

}  // namespace octet::kernels
