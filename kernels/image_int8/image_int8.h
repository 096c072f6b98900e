// Input quantization: uint8 pixels become codes through one table of 256 codes a channel
// (input_table() in src/graph/int8_graph.h). A look-up is exact, so this is the definition and the fast version in one.
#pragma once

#include <cstdint>

#include "kernels/codes.h"

namespace octet::kernels {

struct ImageShape {
  int channels = 0;
  int out_stride = 0;  ///< bytes between neighbouring pixels of the codes, >= channels
};

/// image: pixels [P, channels]; tables: codes [channels, 256]; codes: [P, out_stride], bytes past `channels` become 0.
/// Works on the pixels of `range`.
void quantize_image(const ImageShape& shape, Range range, const uint8_t* tables, const uint8_t* image, uint8_t* codes);

}  // namespace octet::kernels
