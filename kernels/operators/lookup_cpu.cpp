// SPDX-License-Identifier: Apache-2.0
#include "kernels/operators/lookup.h"

#include <cstring>

#include "kernels/operators/products_avx512.h"

namespace octet::kernels {

void lookup_int8_reference(const LookupTable& table, const uint8_t* x, long count, uint8_t* y) {
  for (long i = 0; i < count; ++i) y[i] = table.byte[x[i]];
}

void channel_lookup_int8(const uint8_t* tables, int channels, const uint8_t* x, long count, uint8_t* y) {
  for (long pixel = 0; pixel < count; pixel += channels)
    for (int c = 0; c < channels; ++c) y[pixel + c] = tables[c * 256 + x[pixel + c]];
}

void cpu_lookup_u8(CpuIsa isa, const LookupTable& table, const uint8_t* x, long count, uint8_t* y) {
#if defined(__x86_64__)
  if (vector_isa(isa) == CpuIsa::avx512_vnni && __builtin_cpu_supports("avx512vbmi"))
    return avx512_lookup(table.byte, x, count, y);
#elif defined(__aarch64__)
  if (isa != CpuIsa::portable) return neon_lookup(table.byte, x, count, y);
#endif
  lookup_int8_reference(table, x, count, y);
}

namespace {

/// quantize_image() from three channels to a stride of four, the usual first layer: one store per pixel.
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

namespace {

/// look_up_image() for a fixed number of channels; kChannels = 0 takes tables.channels.
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
