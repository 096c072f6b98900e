// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/data/colours.h"
#include "src/data/place.h"
#include "src/data/transform.h"
#include "src/net/int8_graph.h"

namespace octet {
namespace {

size_t row_bytes(const Transform& t) { return static_cast<size_t>(t.width) * t.channels; }

void check_channels(const Image& image, const Transform& t) {
  if (image.channels == t.channels && image.height > 0 && image.width > 0) return;
  throw data_error(fmt::format("image of {}x{}x{}, but {} channels are wanted; see data.channels", image.height,
                               image.width, image.channels, t.channels));
}

Image resize_shorter(const Image& image, const Transform& t) {
  const ImageSize size = resized_size({image.height, image.width}, t.resize);
  return resize(view(image), size.height, size.width, t);
}

/// Copies the height x width pixels that start at (top, left) of the image; beyond the image they are t.outside.
void copy_crop(const Image& image, int top, int left, const Transform& t, uint8_t* out) {
  const int first = std::clamp(-left, 0, t.width), end = std::clamp(image.width - left, first, t.width);
  for (int y = 0; y < t.height; ++y, out += row_bytes(t)) {
    const int source_y = y + top;
    if (source_y < 0 || source_y >= image.height || first == end) {
      std::memset(out, t.outside, row_bytes(t));
      continue;
    }
    const size_t start = (static_cast<size_t>(source_y) * image.width + (left + first)) * t.channels;
    std::memset(out, t.outside, static_cast<size_t>(first) * t.channels);
    std::memcpy(out + first * t.channels, &image.pixels[start], static_cast<size_t>(end - first) * t.channels);
    std::memset(out + end * t.channels, t.outside, static_cast<size_t>(t.width - end) * t.channels);
  }
}

/// Returns by how many pixels the crop can move on both axes. Throws Error(data) if the image is too small.
ImageSize room(const ImageSize& image, int pad, const Transform& t) {
  const ImageSize slack{image.height + 2 * pad - t.height, image.width + 2 * pad - t.width};
  if (slack.height >= 0 && slack.width >= 0) return slack;
  throw data_error(
      fmt::format("image of {}x{} is smaller than the crop of {}x{}; a recipe's data.resize, or --resize or --fit "
                  "letterbox of an .onnx file, fits it",
                  image.height, image.width, t.height, t.width));
}

ImageSize size_of(const Image& image) { return {image.height, image.width}; }

/// Fills the part of a rectangle that lies inside the input.
void fill(const Transform& t, const Rectangle& rectangle, uint8_t* out) {
  const Rectangle inside = shared(rectangle, t.input());
  for (int y = inside.top; y < inside.top + inside.height; ++y)
    for (int x = inside.left; x < inside.left + inside.width; ++x)
      std::copy(t.fill.begin(), t.fill.end(), out + y * row_bytes(t) + static_cast<size_t>(x) * t.channels);
}

/// Returns a rectangle of 2 to 33 % of the input whose height is 0.3 to 3.3 times its width, or in some images none:
/// torchvision.transforms.RandomErasing.
Rectangle draw_erased(const Transform& t, Random& random) {
  constexpr double kLeastArea = 0.02, kMostArea = 0.33, kLowest = 0.3, kHighest = 3.3;
  constexpr int kTries = 10;
  if (random.uniform() >= t.random_erasing) return {};
  for (int i = 0; i < kTries; ++i) {
    const double wanted = static_cast<double>(t.height) * t.width * random.uniform(kLeastArea, kMostArea);
    const double aspect = std::exp(random.uniform(std::log(kLowest), std::log(kHighest)));
    const int height = static_cast<int>(std::lround(std::sqrt(wanted * aspect)));
    const int width = static_cast<int>(std::lround(std::sqrt(wanted / aspect)));
    if (height < 1 || width < 1 || height >= t.height || width >= t.width) continue;
    const int top = static_cast<int>(random.below(t.height - height + 1));
    return {top, static_cast<int>(random.below(t.width - width + 1)), height, width};
  }
  return {};
}

/// Returns how many of `slack` pixels lie before the centre crop. torchvision.transforms.functional.center_crop has
/// int(round(slack / 2.0)), and Python rounds a half to the even neighbour.
int margin(int slack, const Transform& t) {
  const int down = slack / 2;
  return t.even_margin && slack % 2 == 1 ? down + down % 2 : down;
}

void centre_crop(const Image& image, const Transform& t, uint8_t* out) {
  const ImageSize slack = room(size_of(image), 0, t);
  copy_crop(image, margin(slack.height, t), margin(slack.width, t), t, out);
}

/// Draws and applies the augmentation of an image that is resized already, if the transform says so.
void augment(const Image& image, const Transform& t, Random& random, uint8_t* out) {
  const Augmentation drawn = draw_augmentation(size_of(image), t, random);
  if (t.random_resized_crop) {
    const Image part = resize(view(image, drawn.part), t.height, t.width, t);
    std::copy(part.pixels.begin(), part.pixels.end(), out);
  } else {
    copy_crop(image, drawn.part.top, drawn.part.left, t, out);
  }
  if (drawn.flip) mirror(out, t.height, t.width, t.channels);
  if (!t.classes) {
    const Pixels pixels{out, t.height, t.width, t.channels};
    if (t.jitter.any()) jitter_colours(pixels, t.jitter, random);
    rand_augment(pixels, t.rand_augment, t.rand_augment_magnitude, random);
  }
  fill(t, drawn.cut, out);
  fill(t, drawn.erased, out);
}

bool crops(const Transform& t) { return t.fit == Fit::crop || t.fit == Fit::tensor; }

}  // namespace

Rectangle shared(const Rectangle& a, const Rectangle& b) {
  const int top = std::max(a.top, b.top), left = std::max(a.left, b.left);
  const int bottom = std::min(a.top + a.height, b.top + b.height), right = std::min(a.left + a.width, b.left + b.width);
  return {top, left, std::max(bottom - top, 0), std::max(right - left, 0)};
}

ImageSize resized_size(const ImageSize& image, int shorter) {
  constexpr int kLongest = 1 << 15;
  const bool upright = image.height >= image.width;
  const long low = upright ? image.width : image.height, high = upright ? image.height : image.width;
  const long longer = shorter * high / low;
  if (longer > kLongest) {
    throw data_error(fmt::format("image of {}x{}: {} pixels long with its shorter side resized to {}; at most {}",
                                 image.height, image.width, longer, shorter, kLongest));
  }
  const int other = static_cast<int>(longer);
  return upright ? ImageSize{other, shorter} : ImageSize{shorter, other};
}

std::vector<ImageSize> input_sizes(const Transform& t) {
  if (t.multi_scale == 0) return {{t.height, t.width}};
  int step = 32;
  while (t.height % step != 0 || t.width % step != 0) step /= 2;
  const auto steps = [&](double times) { return times * t.height / step; };
  const int first = std::max(1, static_cast<int>(std::ceil(steps(1 - t.multi_scale) - 1e-9)));
  const int last = static_cast<int>(std::floor(steps(1 + t.multi_scale) + 1e-9));
  std::vector<ImageSize> sizes;
  for (int i = first; i <= last; ++i) {
    const long across = std::lround(static_cast<double>(t.width) * i / t.height);
    sizes.push_back({i * step, static_cast<int>(std::max(1L, across)) * step});
  }
  return sizes;
}

void check_transform(const Transform& t) {
  if (t.height < 1 || t.width < 1) throw usage_error(fmt::format("batch images of {}x{}", t.height, t.width));
  if (t.fit != Fit::tensor && t.channels != 1 && t.channels != 3)
    throw usage_error(fmt::format("{} channels; allowed: 1, 3", t.channels));
  if (t.order == ChannelOrder::bgr && t.channels != 3)
    throw usage_error(fmt::format("channel order bgr for images of {} channel", t.channels));
  if (t.pad < 0 || t.cutout < 0 || t.resize < 0) throw usage_error("pad, cutout and resize cannot be negative");
  if ((t.cutout > 0 || t.random_erasing > 0) && t.fill.size() != static_cast<size_t>(t.channels)) {
    throw usage_error(
        fmt::format("cutout, random_erasing: fill has {} values for {} channels", t.fill.size(), t.channels));
  }
}

Rectangle random_part(const ImageSize& image, double area_min, Random& random) {
  constexpr double kLowest = 3.0 / 4, kHighest = 4.0 / 3;
  constexpr int kTries = 10;
  const double area = static_cast<double>(image.height) * image.width;
  for (int i = 0; i < kTries; ++i) {
    const double wanted = area * random.uniform(area_min, 1);
    const double aspect = std::exp(random.uniform(std::log(kLowest), std::log(kHighest)));
    const int width = static_cast<int>(std::lround(std::sqrt(wanted * aspect)));
    const int height = static_cast<int>(std::lround(std::sqrt(wanted / aspect)));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    const int top = static_cast<int>(random.below(image.height - height + 1));
    const int left = static_cast<int>(random.below(image.width - width + 1));
    return {top, left, height, width};
  }
  // A very long image: takes its middle, with an aspect ratio as near to the allowed ones as possible.
  const int width = std::min(image.width, static_cast<int>(std::lround(image.height * kHighest)));
  const int height = std::min(image.height, static_cast<int>(std::lround(image.width / kLowest)));
  return {(image.height - height) / 2, (image.width - width) / 2, height, width};
}

void check_size(const ImageSize& image, const Transform& t, bool training) {
  if (t.fit != Fit::crop || (training && t.random_resized_crop)) return;
  room(t.resize > 0 ? resized_size(image, t.resize) : image, training ? t.pad : 0, t);
}

void evaluation_pixels(const Image& image, const Transform& t, uint8_t* out) {
  check_channels(image, t);
  if (crops(t)) {  // the images of InputTensors (trainers/loop) have the input's size
    centre_crop(t.resize > 0 ? resize_shorter(image, t) : image, t, out);
  } else {
    const Placed fit{.part = fitted(size_of(image), t), .visible = t.input()};
    place({&image, 1}, t, {&fit, 1}, out);
  }
  if (t.order == ChannelOrder::bgr) exchange_red_and_blue(out, t.height, t.width);
}

Placement placement(const ImageSize& image, const Transform& t) {
  const auto scaled = [&](const Rectangle& to) {
    return Placement{static_cast<double>(to.height) / image.height, static_cast<double>(to.width) / image.width,
                     static_cast<double>(to.top), static_cast<double>(to.left)};
  };
  if (!crops(t)) return scaled(fitted(image, t));
  const ImageSize resized = t.resize > 0 ? resized_size(image, t.resize) : image;
  const ImageSize slack = room(resized, 0, t);
  return scaled({-margin(slack.height, t), -margin(slack.width, t), resized.height, resized.width});
}

Augmentation draw_augmentation(const ImageSize& image, const Transform& t, Random& random) {
  Augmentation drawn;
  if (t.random_resized_crop) {
    drawn.part = random_part(image, t.crop_area_min, random);
  } else {
    const ImageSize slack = room(image, t.pad, t);
    const int top = static_cast<int>(random.below(slack.height + 1)) - t.pad;
    const int left = static_cast<int>(random.below(slack.width + 1)) - t.pad;
    drawn.part = {top, left, t.height, t.width};
  }
  if (t.flip) drawn.flip = random.below(2) == 1;
  if (t.cutout > 0) {  // its centre is anywhere
    const int top = static_cast<int>(random.below(t.height)) - t.cutout / 2;
    const int left = static_cast<int>(random.below(t.width)) - t.cutout / 2;
    drawn.cut = {top, left, t.cutout, t.cutout};
  }
  if (t.random_erasing > 0) drawn.erased = draw_erased(t, random);
  return drawn;
}

void training_pixels(const Image& image, const Transform& t, Random& random, uint8_t* out) {
  check_channels(image, t);
  if (!crops(t)) {
    const Placed placed = draw_placed(size_of(image), t, random);
    place({&image, 1}, t, {&placed, 1}, out);
  } else if (t.resize > 0 && !t.random_resized_crop) {
    augment(resize_shorter(image, t), t, random, out);
  } else {
    augment(image, t, random, out);
  }
  if (t.order == ChannelOrder::bgr) exchange_red_and_blue(out, t.height, t.width);
}

Transform mask_transform(const Transform& transform) {
  Transform mask = transform;
  mask.classes = true;
  mask.channels = 1;
  mask.order = ChannelOrder::rgb;
  mask.fill = {kUnlabelled};
  mask.outside = kUnlabelled;
  return mask;
}

Image evaluation_image(const Image& image, const Transform& transform) {
  check_transform(transform);
  Image result{transform.height, transform.width, transform.channels, {}};
  result.pixels.resize(transform.bytes());
  evaluation_pixels(image, transform, result.pixels.data());
  return result;
}

Transform evaluation_transform(const Shape& input, const Preprocessing& preprocessing) {
  return {.channels = input.c,
          .height = input.h,
          .width = input.w,
          .fit = preprocessing.fit,
          .resize = preprocessing.resize,
          .even_margin = preprocessing.even_margin,
          .order = preprocessing.order};
}

void require_images(const Int8Graph& graph) {
  if (graph.preprocessing.fit != Fit::tensor) return;
  throw usage_error(fmt::format(
      "{} was quantized with tensors (octet quantize --tensors), so its checkpoint does not say how an image "
      "becomes its input: quantize it with --images and --preset, or give it the input's codes in a program",
      graph.name));
}

Image image_for(const Int8Graph& graph, const std::string& file, std::vector<std::string>& notes) {
  require_images(graph);
  const Transform transform = evaluation_transform(graph.input_shape(), graph.preprocessing);
  const bool turn = graph.preprocessing.exif_orientation;
  const std::string data = read_file(file);
  const Image image = decode_image(data, transform.channels, file, turn ? Orientation::exif : Orientation::as_stored);
  const ImageHeader header = decode_header(data, file);
  if (!turn && header.orientation != 1)
    notes.push_back(
        fmt::format("{}: read as stored, not turned as its EXIF data says (orientation {}), for so its "
                    "checkpoint was trained; data.orientation: exif trains one that turns images",
                    file, header.orientation));
  if (const int bits = bits_in_use(header, image); bits < kFewestOf16)
    notes.push_back(fmt::format("{}: a 16-bit PNG whose values use {} bits: it is nearly black; multiply them by {}",
                                file, bits, 1 << (16 - bits)));
  const bool large_enough = image.height >= transform.height && image.width >= transform.width;
  const bool exact = image.height == transform.height && image.width == transform.width;
  if (transform.fit == Fit::crop && transform.resize == 0 && !exact) {
    const std::string sizes = fmt::format("{}: {}x{} pixels; the network reads {}x{} and its checkpoint has no resize",
                                          file, image.width, image.height, transform.width, transform.height);
    if (!large_enough) throw data_error(sizes + ": scale the image, or train the network with a resize (data.resize)");
    notes.push_back(sizes + ": it sees the centre only, as in validation");
  }
  return image;
}

Image network_image(const Int8Graph& graph, const std::string& file, std::vector<std::string>& notes) {
  return evaluation_image(image_for(graph, file, notes),
                          evaluation_transform(graph.input_shape(), graph.preprocessing));
}

}  // namespace octet
