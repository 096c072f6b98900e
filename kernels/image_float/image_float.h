// Pixels become float32 through one table of 256 values a channel: normalized reals, or centred codes. A look-up is
// exact, so every machine gives the same bits.
#pragma once

#include <cstdint>

namespace octet::kernels {

struct PixelTables {
  int channels = 0;
  const float* values = nullptr;  ///< [channels, 256]
};

/// image: [pixels, channels]; out: [pixels, channels].
void look_up_image(const PixelTables& tables, long pixels, const uint8_t* image, float* out);

}  // namespace octet::kernels
