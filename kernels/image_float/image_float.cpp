#include "kernels/image_float/image_float.h"

namespace octet::kernels {
namespace {

/// kChannels: 0 for tables.channels.
template <int kChannels>
void look_up(const PixelTables& tables, long pixels, const uint8_t* image, float* out) {
  const int channels = kChannels > 0 ? kChannels : tables.channels;
  for (long i = 0; i < pixels; ++i)
    for (int c = 0; c < channels; ++c) out[i * channels + c] = tables.values[c * 256 + image[i * channels + c]];
}

}  // namespace

void look_up_image(const PixelTables& tables, long pixels, const uint8_t* image, float* out) {
  const auto run = tables.channels == 3 ? look_up<3> : tables.channels == 1 ? look_up<1> : look_up<0>;
  run(tables, pixels, image, out);
}

}  // namespace octet::kernels
