// SPDX-License-Identifier: Apache-2.0
// The paths behind CpuConv2d::create() and what they share. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "kernels/conv/cpu/micro_kernels.h"
#include "kernels/core/divide.h"

namespace octet::kernels {

/// Makes the path for any shape in plain C++.
std::unique_ptr<CpuConv2d> make_portable_conv2d(const Conv2dShape& shape, const Conv2dParams& params,
                                                const Conv2dWeights& weights);

/// Return the micro-kernels that compute a convolution on a path other than portable.
const GemmKernels& gemm_kernels(CpuIsa isa);
const DepthwiseKernels& depthwise_kernels(CpuIsa isa);

/// Makes the path for any shape as a matrix product, by the micro-kernels of one instruction set.
std::unique_ptr<CpuConv2d> make_gemm_conv2d(const Conv2dShape& shape, const Conv2dParams& params,
                                            const Conv2dWeights& weights, CpuIsa isa);

/// Returns whether a convolution fills AMX's tiles; the others are faster with AVX-512.
bool amx_fits(const Conv2dShape& shape, const Conv2dParams& params);
/// Makes the path of AMX for a convolution that fits.
std::unique_ptr<CpuConv2d> make_amx_conv2d(const Conv2dShape& shape, const Conv2dParams& params,
                                           const Conv2dWeights& weights);

/// Makes the path for depthwise convolutions (groups == in_c == out_c) that write codes, by the kernels of one
/// instruction set.
std::unique_ptr<CpuConv2d> make_depthwise_conv2d(const Conv2dShape& shape, const Conv2dParams& params,
                                                 const Conv2dWeights& weights, CpuIsa isa);

/// Replaces each code of `rows` pixels by table[code]; a pixel has `channels` codes and the next begins `stride` bytes
/// further on.
void look_up_rows(CpuIsa isa, const LookupTable& table, uint8_t* y, int rows, ptrdiff_t stride, int channels);

/// Returns the name of a way to run a convolution: "conv", its window, and `parts`, one after the other.
std::string conv_name(const Conv2dShape& shape, std::initializer_list<std::string_view> parts);

/// Returns what micro-kernels need to turn accumulators into the codes that `params` describes.
Epilogue make_epilogue(const Conv2dParams& params);

/// An uninitialized array on a 64-byte boundary, so that no vector load crosses a cache line.
template <class T>
class AlignedArray {
 public:
  AlignedArray() = default;
  explicit AlignedArray(size_t size) : size_(size), data_(static_cast<T*>(::operator new(bytes(), kAlign))) {}
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t bytes() const { return size_ * sizeof(T); }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(T* p) const { ::operator delete(p, kAlign); }
  };
  size_t size_ = 0;
  std::unique_ptr<T, Free> data_;
};

/// The right operand of the matrix product. Weights are blocked for instructions that sum k_group products:
///   weight[group of channels][block][k / k_group][block's channels][k_group]
/// k counts the bytes of one im2row row, [R][S][tap_bytes]. Every block has block_channels channels, except that the
/// last block of a group has only as many vectors as it needs. Missing channels and taps are zero.
struct PackedGemm {
  int tap_bytes = 0;        ///< input channels of a group, rounded up to k_group
  int k = 0;                ///< R * S * tap_bytes
  int group_channels = 0;   ///< output channels of one group
  int padded_channels = 0;  ///< group_channels rounded up to whole vectors
  int block_channels = 0;
  int blocks = 0;  ///< blocks of one group
  AlignedArray<int8_t> weight;
  AlignedArray<int32_t> init;            ///< [groups][padded_channels]: (code_offset - zx) * sum(w)
  AlignedArray<float> multiplier, bias;  ///< [groups][padded_channels]

  size_t bytes() const { return weight.bytes() + init.bytes() + multiplier.bytes() + bias.bytes(); }
};

/// Packs weights and constants for `kernels`; a block has `width` vectors of channels.
PackedGemm pack_gemm(const Conv2dShape& shape, const Conv2dParams& params, const Conv2dWeights& weights,
                     const GemmKernels& kernels, int width);

/// The left operand of the matrix product: gathers the input codes under an output pixel into a row [R][S][tap_bytes],
/// with zero points for padding. A code takes GemmKernels::activation_bytes bytes.
class Im2Row {
 public:
  Im2Row(const Conv2dShape& shape, int x_zero_point, int tap_bytes, const GemmKernels& kernels);

  /// Writes the rows of output pixels first_row, first_row + 1, ... of a batch to `to`, row_bytes apart. x: the batch
  /// at the first channel wanted. Up to kCpuReadSlack codes behind the last are read and written.
  void gather(const uint8_t* x, int first_row, int rows, uint8_t* to, ptrdiff_t row_bytes) const;

 private:
  /// The taps [first, last) of a window that lie inside the image, along one axis.
  struct Span {
    int first = 0, last = 0;
  };
  static Span inside(int position, int kernel, int dilation, int size);
  void gather_inner(const uint8_t* image, int oy, int ox, int pixels, uint8_t* to, ptrdiff_t row_bytes) const;
  void gather_pixel(const uint8_t* image, int oy, int ox, uint8_t* to) const;
  uint8_t* fill(uint8_t* to, int taps) const;
  uint8_t* copy(uint8_t* to, const uint8_t* from, int codes) const;

  Conv2dShape g_;
  int x_zero_point_, tap_bytes_;
  bool wide_;  // codes are widened to int16
  void (*gather_run_)(const GatherRun&);
  std::vector<Span> rows_, columns_;      // by oy and by ox
  int inner_first_ = 0, inner_last_ = 0;  // range of ox whose windows lie within the image's width
};

}  // namespace octet::kernels
