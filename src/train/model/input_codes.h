// SPDX-License-Identifier: Apache-2.0
// The codes of a network's input in place of pixels, for inputs that are no images.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kernels/core/quantize.h"
#include "src/net/preprocessing.h"

namespace octet {

/// Returns the preprocessing under which the bytes of the input's codes are the pixels: Fit::tensor, and the mean and
/// deviation with which pixel p becomes the real value of the code whose byte is p.
Preprocessing pixels_are_codes(const QParams& codes, int channels);

/// Returns the pixels, uint8 [N, H, W, C], of x, normalized float [N, C, H, W] on the host, under
/// pixels_are_codes(codes, C).
std::vector<uint8_t> pixels_of(const at::Tensor& x, const QParams& codes);

}  // namespace octet
