// Gathering with 64-byte moves: most segments (a tap's channels, or a window row of them) take one load and one store.
// A move may write up to 63 bytes too many; rows and segments are written in ascending order, so each is completed by
// those after it.
#include <immintrin.h>

#include "kernels/conv2d_int8/cpu/gemm.h"

namespace octet::kernels {
namespace {

void copy64(const uint8_t* from, uint8_t* to) { _mm512_storeu_si512(to, _mm512_loadu_si512(from)); }

}  // namespace

void avx512_gather(const GatherRun& run) {
  for (int pixel = 0; pixel < run.pixels; ++pixel) {
    uint8_t* to = run.to + pixel * run.to_step;
    const uint8_t* row = run.from + pixel * run.pixel_step;
    for (int r = 0; r < run.rows; ++r, row += run.row_step) {
      const uint8_t* from = row;
      for (int s = 0; s < run.segments; ++s, from += run.segment_step, to += run.segment_bytes) {
        copy64(from, to);
        for (int i = 64; i < run.segment_bytes; i += 64) copy64(from + i, to + i);
      }
    }
  }
}

}  // namespace octet::kernels
