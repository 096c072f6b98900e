// SPDX-License-Identifier: Apache-2.0
// Look-ups in tables of 256 entries: the operator lookup, of one table or of one a channel, and images, whose pixels
// become codes or real values. A look-up is exact, so every path gives the same bytes.
#pragma once

#include <cstdint>

#include "kernels/core/codes.h"
#include "kernels/core/cpu.h"
#include "kernels/core/cuda.h"

namespace octet::kernels {

/// A function of one value: the stored byte of the output's code, by the stored byte of the input's code.
struct LookupTable {
  uint8_t byte[256];
};

/// Writes table[x] for `count` bytes; y may be x. The same for int8 and uint8.
void lookup_int8_reference(const LookupTable& table, const uint8_t* x, long count, uint8_t* y);

/// Writes tables[channel][x] for `count` bytes, where byte i is of channel i % channels; tables: [channels, 256].
void channel_lookup_int8(const uint8_t* tables, int channels, const uint8_t* x, long count, uint8_t* y);

/// lookup_int8_reference() on a path; avx512_vnni holds the table in registers where the processor has VBMI.
void cpu_lookup_u8(CpuIsa isa, const LookupTable& table, const uint8_t* x, long count, uint8_t* y);

/// lookup_int8_reference() on the GPU, for `count` bytes on the device. It is fast when the addresses and count are
/// multiples of 16. Throws Error(promise) when the launch fails.
void cuda_lookup_int8(const LookupTable& table, const uint8_t* x, long count, uint8_t* y, CudaStream stream);

/// channel_lookup_int8() on the GPU, likewise; tables, too, are on the device. It is fast when `channels` is a multiple
/// of 16 as well.
void cuda_channel_lookup_int8(const uint8_t* tables, int channels, const uint8_t* x, long count, uint8_t* y,
                              CudaStream stream);

/// How the GPU divides a lookup of one table a channel; its kernel and its test on the host use this.
///
/// A warp looks up words of four neighbouring channels, each lane at every pixel those of the same channels. A block
/// holds the tables of its channels in shared memory, one copy a lane, so that each lane reads a bank of its own. Up to
/// 32 words are a chunk; fewer words let a warp take several pixels at once.
struct ChannelLookupPlan {
  static constexpr int kLanes = 32, kEntryWords = 64;           ///< of a warp; of a table
  static constexpr int kTableWords = 4 * kEntryWords * kLanes;  ///< 32 KiB of shared memory

  int words = 0, pixels = 0;        ///< of a pixel; of the batch
  int chunks = 1, chunk_words = 0;  ///< each chunk but the last has chunk_words <= 32 of the pixel's words
  int pixels_of_warp = 1;

  /// channels: a multiple of 4.
  ChannelLookupPlan(int channels, int all_pixels)
      : words(channels / 4),
        pixels(all_pixels),
        chunks((words + kLanes - 1) / kLanes),
        chunk_words((words + chunks - 1) / chunks),
        pixels_of_warp(kLanes / chunk_words) {}

  /// Returns the word of a pixel that a lane looks up in chunk `chunk`, or -1 if it has none.
  OCTET_HOST_DEVICE int word(int chunk, int lane) const {
    const int found = chunk * chunk_words + lane % chunk_words;
    return lane < pixels_of_warp * chunk_words && found < words ? found : -1;
  }
  /// Returns the lane's first pixel in warp `warp` of all that work on a chunk; the next is a step() further on.
  OCTET_HOST_DEVICE int first_pixel(int warp, int lane) const { return warp * pixels_of_warp + lane / chunk_words; }
  OCTET_HOST_DEVICE int step(int warps) const { return warps * pixels_of_warp; }

  /// Returns where word `entries` (of 64) of the table of a lane's channel `channel` (of 4) lies in shared memory.
  OCTET_HOST_DEVICE static int table_word(int channel, int entries, int lane) {
    return (channel * kEntryWords + entries) * kLanes + lane;
  }
  /// Returns the byte in shared memory with the entry of `code`.
  OCTET_HOST_DEVICE static int table_byte(int channel, uint32_t code, int lane) {
    return table_word(channel, static_cast<int>(code >> 2), lane) * 4 + static_cast<int>(code & 3);
  }
};

struct ImageShape {
  int channels = 0;
  int out_stride = 0;  ///< bytes from one pixel of the codes to the next, >= channels
};

/// Quantizes the pixels of `range`. image: [pixels, channels]; tables: codes [channels, 256], of input_table() in
/// src/net/int8_graph.h; codes: [pixels, out_stride], bytes past `channels` become 0.
void quantize_image(const ImageShape& shape, Range range, const uint8_t* tables, const uint8_t* image, uint8_t* codes);

/// quantize_image() for all `pixels` on the GPU; all pointers are on the device.
void cuda_quantize_image(const ImageShape& shape, long pixels, const uint8_t* tables, const uint8_t* image,
                         uint8_t* codes, CudaStream stream);

/// The real value of each pixel value of each channel: normalized, or a code minus its zero point.
struct PixelTables {
  int channels = 0;
  const float* values = nullptr;  ///< [channels, 256]
};

/// Writes the real value of each pixel. image and out: [pixels, channels].
void look_up_image(const PixelTables& tables, long pixels, const uint8_t* image, float* out);

/// look_up_image() on the GPU; all pointers are on the device, also the tables'.
void cuda_look_up_image(const PixelTables& tables, long pixels, const uint8_t* image, float* out, CudaStream stream);

}  // namespace octet::kernels
