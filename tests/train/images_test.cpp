// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/core/quantize.h"
#include "src/train/model/model.h"

namespace octet {
namespace {

TEST(ImagesToTensor, EveryPixelAsNormalizePixel) {
  for (const int channels : {1, 2, 3}) {
    const Shape shape{channels, 16, 33};
    const int batch = 40;  // several shares for threads
    std::vector<uint8_t> images(batch * shape.elements());
    for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<uint8_t>(i * 7 + i / 256);
    const std::vector<float> mean = {0.485f, 0.1f, 0.9f}, std = {0.229f, 0.5f, 0.01f};
    const at::Tensor x = images_to_tensor({images.data(), batch, shape}, mean, std);
    ASSERT_TRUE(x.is_contiguous(at::MemoryFormat::ChannelsLast));
    ASSERT_EQ(x.sizes(), (std::vector<int64_t>{batch, channels, 16, 33}));
    const float* data = x.const_data_ptr<float>();
    for (size_t i = 0; i < images.size(); ++i) {
      const int c = static_cast<int>(i) % channels;
      ASSERT_EQ(data[i], normalize_pixel(images[i], mean[c], std[c])) << i;
    }
  }
}

}  // namespace
}  // namespace octet
