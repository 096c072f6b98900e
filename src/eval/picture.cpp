#include "src/eval/picture.h"

#include <fmt/format.h>

#include "src/common/error.h"
#include "src/common/files.h"

namespace octet {
namespace {

/// The evaluation transform that the checkpoint's preprocessing asks for.
Transform transform_of(const Int8Graph& graph) {
  Transform transform;
  const Shape& shape = graph.input_shape();
  transform.channels = shape.c;
  transform.height = shape.h;
  transform.width = shape.w;
  transform.resize = graph.preprocessing.resize;
  transform.even_margin = graph.preprocessing.even_margin;
  return transform;
}

}  // namespace

Image network_picture(const Int8Graph& graph, const std::string& file, std::vector<std::string>& notes) {
  const Transform transform = transform_of(graph);
  const bool turn = graph.preprocessing.exif_orientation;
  const std::string data = read_file(file);
  const auto* bytes = reinterpret_cast<const uint8_t*>(data.data());
  const Image image =
      decode_image(bytes, data.size(), transform.channels, file, turn ? Orientation::exif : Orientation::as_stored);
  const PictureHeader header = decode_header(bytes, data.size(), file);
  if (!turn && header.orientation != 1)
    notes.push_back(
        fmt::format("{}: read as stored, not turned as its EXIF data says (orientation {}), for so its "
                    "checkpoint was trained; data.orientation: exif trains one that turns pictures",
                    file, header.orientation));
  if (const int bits = bits_in_use(header, image); bits < kFewestOf16)
    notes.push_back(fmt::format("{}: a 16-bit PNG whose values use {} bits: it is nearly black; multiply them by {}",
                                file, bits, 1 << (16 - bits)));
  const bool large_enough = image.height >= transform.height && image.width >= transform.width;
  const bool exact = image.height == transform.height && image.width == transform.width;
  if (transform.resize == 0 && !exact) {
    const std::string sizes = fmt::format("{}: {}x{} pixels; the network reads {}x{} and its checkpoint has no resize",
                                          file, image.width, image.height, transform.width, transform.height);
    if (!large_enough)
      throw data_error(sizes + ": scale the picture, or train the network with a resize (data.resize)");
    notes.push_back(sizes + ": it sees the centre only, as in validation");
  }
  return evaluation_image(image, transform);
}

}  // namespace octet
