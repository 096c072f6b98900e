// JPEG and PNG, in colour and grey, and the resize behind them.
#include <cstdlib>

#include "src/common/error.h"
#include "src/data/loader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octet::Transform transform;
  transform.height = transform.width = 8;
  transform.resize = 9;
  transform.channels = size % 2 == 0 ? 3 : 1;
  try {
    const octet::Image image = octet::decode_image(data, size, transform.channels, "fuzz");
    if (octet::evaluation_image(image, transform).pixels.size() != size_t{64} * transform.channels) std::abort();
  } catch (const octet::Error& error) {
    if (error.code() != octet::ExitCode::data) std::abort();
  }
  return 0;
}
