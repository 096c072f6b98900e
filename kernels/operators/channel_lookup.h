// SPDX-License-Identifier: Apache-2.0
// How the GPU divides a lookup of one table a channel: plain index functions for the kernel and for its test on the
// host.
#pragma once

#include <cstdint>

#include "kernels/core/codes.h"

namespace octet::kernels {

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

}  // namespace octet::kernels
