// SPDX-License-Identifier: Apache-2.0
#include "tests/train/convolutions.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorAccessor.h>

#include <algorithm>
#include <random>

namespace octet::test {

Convolution random_convolution(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto between = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
  Convolution c;
  const int depthwise = between(0, 2) == 0, group_c = depthwise ? 1 : between(1, 9);
  c.groups = depthwise ? between(2, 20) : between(1, 3);
  Window& w = c.window;
  w = {between(1, 5), between(1, 4), between(1, 3), between(1, 2), {}, between(1, 2), between(1, 2)};
  w.pad = even_padding(between(0, w.kernel_h), between(0, w.kernel_w));
  if (between(0, 1) == 1) w.pad.bottom = between(0, w.kernel_h), w.pad.right = between(0, w.kernel_w);
  const int h = between(w.dilation_h * (w.kernel_h - 1) + 1, 17),
            width = between(w.dilation_w * (w.kernel_w - 1) + 1, 13);
  at::Generator generator = at::detail::createCPUGenerator(seed);
  c.x = at::empty({between(1, 3), c.groups * group_c, h, width}).random_(-255, 256, generator);
  if (between(0, 1) == 1) c.x = c.x.contiguous(at::MemoryFormat::ChannelsLast);
  c.weight = at::empty({c.groups * between(1, 4), group_c, w.kernel_h, w.kernel_w}).random_(-127, 128, generator);
  return c;
}

Convolution large_convolution(int groups) {
  at::Generator generator = at::detail::createCPUGenerator(groups);
  const int kernel = groups > 1 ? 41 : 3, group_c = groups > 1 ? 1 : 400;  // more than one group: depthwise
  Convolution c;
  c.groups = groups;
  c.window = {kernel, kernel, 1, 1, even_padding(0, 1)};
  c.x = at::empty({2, groups * group_c, kernel + 1, kernel + 2}).random_(128, 256, generator);
  c.weight = at::empty({groups * 2, group_c, kernel, kernel}).random_(64, 128, generator);
  return c;
}

at::Tensor sums_of(const Convolution& c) {
  const Window& w = c.window;
  const int64_t out_h = (c.x.size(2) + w.pad.top + w.pad.bottom - w.dilation_h * (w.kernel_h - 1) - 1) / w.stride_h + 1;
  const int64_t out_w = (c.x.size(3) + w.pad.left + w.pad.right - w.dilation_w * (w.kernel_w - 1) - 1) / w.stride_w + 1;
  at::Tensor sums = at::zeros({c.x.size(0), c.weight.size(0), out_h, out_w}, at::kLong);
  const auto x = c.x.accessor<float, 4>();
  const auto weight = c.weight.accessor<float, 4>();
  auto y = sums.accessor<int64_t, 4>();
  const int64_t group_k = c.weight.size(0) / c.groups, group_c = c.weight.size(1);
  for (int64_t n = 0; n < y.size(0); ++n)
    for (int64_t k = 0; k < y.size(1); ++k)
      for (int64_t i = 0; i < out_h; ++i)
        for (int64_t j = 0; j < out_w; ++j)
          for (int64_t channel = 0; channel < group_c; ++channel)
            for (int64_t r = 0; r < w.kernel_h; ++r)
              for (int64_t s = 0; s < w.kernel_w; ++s) {
                const int64_t row = i * w.stride_h - w.pad.top + r * w.dilation_h;
                const int64_t column = j * w.stride_w - w.pad.left + s * w.dilation_w;
                if (row < 0 || row >= x.size(2) || column < 0 || column >= x.size(3)) continue;
                y[n][k][i][j] += static_cast<int64_t>(x[n][k / group_k * group_c + channel][row][column]) *
                                 static_cast<int64_t>(weight[k][channel][r][s]);
              }
  return sums;
}

}  // namespace octet::test
