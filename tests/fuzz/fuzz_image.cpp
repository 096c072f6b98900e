// SPDX-License-Identifier: Apache-2.0
// JPEG, PNG, BMP and WebP with their EXIF data, in colour and grey, and the resize behind them.
#include <cstdlib>
#include <string_view>

#include "src/base/error.h"
#include "src/data/decoders.h"
#include "src/data/loader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octet::Transform transform;
  transform.height = transform.width = 8;
  transform.resize = 9;
  transform.channels = size % 2 == 0 ? 3 : 1;
  transform.even_margin = true;
  const int of_exif = octet::exif_orientation(data, size);  // the data itself as EXIF
  if (of_exif < 1 || of_exif > 8) std::abort();
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const octet::Image image = octet::decode_image(bytes, transform.channels, "fuzz", octet::Orientation::exif);
    const octet::ImageHeader header = octet::decode_header(bytes, "fuzz");
    const octet::ImageSize seen = octet::upright(octet::ImageSize{header.height, header.width}, header.orientation);
    if (seen.height != image.height || seen.width != image.width) std::abort();
    if (octet::evaluation_image(image, transform).pixels.size() != size_t{64} * transform.channels) std::abort();
  } catch (const octet::Error& error) {
    if (error.code() != octet::ExitCode::data) std::abort();
  }
  return 0;
}
