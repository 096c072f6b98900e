#include "kernels/image_int8/image_int8.h"

#include <cstring>

namespace octet::kernels {
namespace {

// Three channels in four bytes, the usual first layer: one store a pixel.
void quantize_rgb_to_four(Range range, const uint8_t* tables, const uint8_t* image, uint8_t* codes) {
  for (int pixel = range.begin; pixel < range.end; ++pixel) {
    const uint8_t* in = image + 3L * pixel;
    const uint32_t packed = static_cast<uint32_t>(tables[in[0]]) | static_cast<uint32_t>(tables[256 + in[1]]) << 8 |
                            static_cast<uint32_t>(tables[512 + in[2]]) << 16;
    const uint8_t bytes[4] = {static_cast<uint8_t>(packed), static_cast<uint8_t>(packed >> 8),
                              static_cast<uint8_t>(packed >> 16), 0};
    std::memcpy(codes + 4L * pixel, bytes, 4);
  }
}

}  // namespace

void quantize_image(const ImageShape& shape, Range range, const uint8_t* tables, const uint8_t* image, uint8_t* codes) {
  if (shape.channels == 3 && shape.out_stride == 4) return quantize_rgb_to_four(range, tables, image, codes);
  for (int pixel = range.begin; pixel < range.end; ++pixel) {
    const uint8_t* in = image + static_cast<long>(shape.channels) * pixel;
    uint8_t* out = codes + static_cast<long>(shape.out_stride) * pixel;
    for (int c = 0; c < shape.channels; ++c) out[c] = tables[256 * c + in[c]];
    for (int c = shape.channels; c < shape.out_stride; ++c) out[c] = 0;
  }
}

}  // namespace octet::kernels
