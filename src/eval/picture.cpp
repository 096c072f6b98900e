#include "src/eval/picture.h"

#include <fmt/format.h>

#include "src/common/error.h"

namespace octet {

Transform transform_of(const Int8Graph& graph) {
  Transform transform;
  const Shape& shape = graph.input_shape();
  transform.channels = shape.c;
  transform.height = shape.h;
  transform.width = shape.w;
  transform.resize = graph.preprocessing.resize;
  return transform;
}

Image fit(const Image& image, const Transform& transform, const std::string& path, std::string& note) {
  note.clear();
  const bool large_enough = image.height >= transform.height && image.width >= transform.width;
  const bool exact = image.height == transform.height && image.width == transform.width;
  if (transform.resize == 0 && !exact) {
    const std::string sizes = fmt::format("{}: {}x{} pixels; the network reads {}x{} and its checkpoint has no resize",
                                          path, image.width, image.height, transform.width, transform.height);
    if (!large_enough)
      throw data_error(sizes + ": scale the picture, or train the network with a resize (data.resize)");
    note = sizes + ": it sees the centre only, as in validation";
  }
  return evaluation_image(image, transform);
}

}  // namespace octet
