// Weights and per-channel constants in the order in which micro-kernels read them.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "kernels/ceil_div.h"
#include "kernels/conv2d_int8/conv2d_int8.h"
#include "kernels/conv2d_int8/cpu/gemm.h"

namespace octet::kernels {

/// An uninitialised array on a 64-byte boundary, so that no vector load crosses a cache line.
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

/// Blocked weights for vpdpbusd and vpmaddwd:
///   weight[group of channels][block][k / k_group][block's channels][k_group]
/// k counts the bytes of one im2row row: [R][S][tap_bytes], tap_bytes = channels of the group rounded up to k_group.
/// Every block has block_channels channels, but the last of a group only as many whole vectors as it needs. Missing
/// channels and taps are zero.
struct PackedGemm {
  int tap_bytes = 0;
  int k = 0;                ///< R * S * tap_bytes
  int group_channels = 0;   ///< output channels of one group
  int padded_channels = 0;  ///< the same rounded up to whole vectors
  int block_channels = 0;
  int blocks = 0;  ///< of one group
  AlignedArray<int8_t> weight;
  AlignedArray<int32_t> init;            ///< [groups][padded_channels]: -zx * sum(w)
  AlignedArray<float> multiplier, bias;  ///< [groups][padded_channels]

  size_t bytes() const { return weight.bytes() + init.bytes() + multiplier.bytes() + bias.bytes(); }
};

PackedGemm pack_gemm(const Conv2dShape& shape, const Conv2dParams& params, const Conv2dWeights& weights,
                     const GemmKernels& kernels, int width);

Epilogue make_epilogue(const Conv2dParams& params);

constexpr int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace octet::kernels
