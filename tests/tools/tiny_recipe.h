// SPDX-License-Identifier: Apache-2.0
// A run of a second or two on synthetic images.
#pragma once

namespace octet::test {

inline constexpr const char* kTinyRecipe = R"(threads: 1
data: {format: synthetic, channels: 1, image_size: 8, synthetic_size: 160, validation_fraction: 0.2,
  limit_test: 120, synthetic_classes: 4, mean: [0.5], std: [0.25], workers: 1}
model: {name: small_cnn}
train: {epochs: 1, batch_size: 32, learning_rate: 0.05}
calibrate: {images: 16, batch_size: 8}
qat: {epochs: 1, batch_size: 32, learning_rate: 0.01}
)";

}  // namespace octet::test
