#include "tools/octet/target.h"

#include <fmt/format.h>

#include <filesystem>

#include "src/common/error.h"

namespace octet::cli {

std::string checkpoint_of(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::exists(path)) throw data_error(fmt::format("{}: no such checkpoint or run directory", path));
  if (!fs::is_directory(path)) return path;
  const std::string file = (fs::path(path) / "int8.safetensors").string();
  if (!fs::exists(file)) {
    throw data_error(
        fmt::format("{}: this run directory has no int8.safetensors; finish it with octet train --resume", path));
  }
  return file;
}

RunDirectory run_directory(const std::string& path) {
  RunDirectory directory{path};
  while (directory.root.size() > 1 && directory.root.back() == '/') directory.root.pop_back();
  if (!std::filesystem::exists(directory.recipe())) {
    throw data_error(fmt::format("{}: not a run directory (no recipe.yaml in it); octet train makes one", path));
  }
  return directory;
}

Transform transform_of(const Int8Graph& graph) {
  Transform transform;
  const Shape& shape = graph.input_shape();
  transform.channels = shape.c;
  transform.height = shape.h;
  transform.width = shape.w;
  transform.resize = graph.preprocessing.resize;
  return transform;
}

Image fit(const Image& image, const Transform& transform, const std::string& path) {
  const bool large_enough = image.height >= transform.height && image.width >= transform.width;
  if (transform.resize == 0 && !large_enough) {
    throw data_error(fmt::format("{}: {}x{} pixels; the network reads {}x{} and its preprocessing has no resize", path,
                                 image.width, image.height, transform.width, transform.height));
  }
  return evaluation_image(image, transform);
}

}  // namespace octet::cli
