// SPDX-License-Identifier: Apache-2.0
#include "src/train/model/input_codes.h"

#include <algorithm>

#include "src/train/model/threads.h"

namespace octet {
namespace {

int lowest_byte(const QParams& codes) { return codes.is_signed() ? -128 : 0; }

}  // namespace

Preprocessing pixels_are_codes(const QParams& codes, int channels) {
  Preprocessing p;
  p.fit = Fit::tensor;
  const int zero = codes.zero_point - lowest_byte(codes);
  p.mean.assign(static_cast<size_t>(channels), static_cast<float>(zero) / 255.0f);
  p.std.assign(static_cast<size_t>(channels), static_cast<float>(1 / (255.0 * codes.scale)));
  return p;
}

std::vector<uint8_t> pixels_of(const at::Tensor& x, const QParams& codes) {
  constexpr int64_t kGrain = 16384;  // a thread takes at least so many values
  const at::Tensor last = x.permute({0, 2, 3, 1}).contiguous();
  const float* values = last.const_data_ptr<float>();
  std::vector<uint8_t> pixels(static_cast<size_t>(last.numel()));
  share_among_threads(last.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      pixels[i] = static_cast<uint8_t>(quantize(values[i], codes) - lowest_byte(codes));
  });
  return pixels;
}

}  // namespace octet
