// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdlib>

#include "src/base/error.h"
#include "src/base/random.h"
#include "src/data/memory_dataset.h"

namespace octet {
namespace {

/// Returns a triangle wave of period 256, with values 0 .. 255.
int triangle_wave(int phase) { return std::min(255, 2 * std::abs((phase & 255) - 128)); }

constexpr int kNoise = 48;

/// Stripes whose phase moves by dx and dy 256ths of a period for each pixel.
struct Texture {
  int dx = 0, dy = 0, place = 0;
  int base[3] = {}, contrast[3] = {};

  uint8_t at(int x, int y, int channel, int noise) const {
    const int wave = triangle_wave(place + dx * x + dy * y) * contrast[channel] / 256;
    return static_cast<uint8_t>(std::min(255, base[channel] + wave + noise));
  }
};

/// Draws stripes whose phase moves by slowest .. fastest along one axis, and by 0 .. fastest along the other.
Texture draw_texture(Random& random, int slowest, int fastest) {
  Texture t;
  const auto speed = [&](int least) {
    const int s = least + static_cast<int>(random.below(fastest - least + 1));
    return random.below(2) == 1 ? -s : s;
  };
  t.dx = speed(slowest);
  t.dy = speed(0);
  if (random.below(2) == 1) std::swap(t.dx, t.dy);
  t.place = static_cast<int>(random.below(256));
  for (int c = 0; c < 3; ++c) {
    t.base[c] = static_cast<int>(random.below(96));
    t.contrast[c] = 48 + static_cast<int>(random.below(64));
  }
  return t;
}

struct Object {
  enum Kind { disc, box, triangle, kKinds };
  int kind = disc, x = 0, y = 0, radius = 0, half_height = 0;
  Texture texture;

  bool covers(int px, int py) const {
    const int dx = std::abs(px - x), dy = py - y;
    if (kind == disc) return dx * dx + dy * dy <= radius * radius;
    if (kind == box) return dx <= radius && std::abs(dy) <= half_height;
    return dy >= -radius && dy <= radius && 2 * dx <= dy + radius;  // a triangle with its point above
  }
};

Object draw_object(Random& random, int side) {
  Object s;
  s.kind = static_cast<int>(random.below(Object::kKinds));
  s.x = static_cast<int>(random.below(side));
  s.y = static_cast<int>(random.below(side));
  const int least = std::max(2, side / 10), most = std::max(least, side / 4);
  s.radius = least + static_cast<int>(random.below(most - least + 1));
  s.half_height = s.radius / 2 + static_cast<int>(random.below(s.radius / 2 + 1));
  s.texture = draw_texture(random, 32, 64);
  return s;
}

/// What both kinds of synthetic images share.
class Synthetic : public Dataset {
 public:
  explicit Synthetic(const DatasetSpec& spec) : spec_(spec) {}
  size_t size() const override { return static_cast<size_t>(spec_.synthetic_size); }
  int channels() const override { return spec_.channels; }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::optional<ImageSize> common_size() const override { return ImageSize{spec_.image_size, spec_.image_size}; }

 protected:
  Image blank(int channels) const {
    const int side = spec_.image_size;
    return {side, side, channels, std::vector<uint8_t>(static_cast<size_t>(side) * side * channels)};
  }

  DatasetSpec spec_;
  std::vector<std::string> class_names_;
};

/// Images with one class each: stripes whose direction, width and colour follow from the class, at a random place and
/// with noise.
class Stripes : public Synthetic {
 public:
  explicit Stripes(const DatasetSpec& spec) : Synthetic(spec) {
    for (int i = 0; i < spec.synthetic_classes; ++i) class_names_.push_back("pattern" + std::to_string(i));
  }

  int label(size_t index) const override { return static_cast<int>(index) % spec_.synthetic_classes; }

  Image read(size_t index) const override {
    // The stripes of a class do not depend on the split or the seed, so that training and validation agree.
    Random pattern({0, static_cast<uint64_t>(label(index))});
    const int dx = static_cast<int>(pattern.below(97)) - 48, dy = static_cast<int>(pattern.below(97)) - 48;
    int contrast[3];
    for (int& c : contrast) c = 40 + static_cast<int>(pattern.below(80));

    Random random({spec_.seed, spec_.split == "train" ? 1u : 2u, index});
    const int place = static_cast<int>(random.below(256)), brightness = static_cast<int>(random.below(60));
    Image image = blank(spec_.channels);
    uint8_t* out = image.pixels.data();
    for (int y = 0; y < image.height; ++y) {
      for (int x = 0; x < image.width; ++x) {
        const int wave = triangle_wave(place + dx * x + dy * y);
        for (int c = 0; c < image.channels; ++c) {
          const int noise = static_cast<int>(random.below(64));
          *out++ = static_cast<uint8_t>(std::min(255, brightness + wave * contrast[c] / 128 + noise));
        }
      }
    }
    return image;
  }

  std::string describe(size_t index) const override {
    return "synthetic " + spec_.split + "[" + std::to_string(index) + "]";
  }
};

/// Images with a class for each pixel.
class Scenes : public Synthetic {
 public:
  explicit Scenes(const DatasetSpec& spec) : Synthetic(spec) {
    if (spec.synthetic_classes == 2) {
      class_names_ = {"background", "shape"};
    } else if (spec.synthetic_classes == 1 + Object::kKinds) {
      class_names_ = {"background", "disc", "box", "triangle"};
    } else {
      throw usage_error(
          fmt::format("data.synthetic_classes: {}; with data.labels: pixels 2 (background, shape) or 4 "
                      "(background, disc, box, triangle)",
                      spec.synthetic_classes));
    }
  }

  Labels labels() const override { return Labels::pixels; }

  int label(size_t index) const override {
    throw usage_error(describe(index) + ": each pixel has a class of its own, the image has none");
  }

  Image read(size_t index) const override {
    Scene drawn = scene(index);
    Image image = blank(spec_.channels);
    uint8_t* out = image.pixels.data();
    for (int y = 0; y < image.height; ++y) {
      for (int x = 0; x < image.width; ++x) {
        const Object* object = drawn.at(x, y);
        const Texture& texture = object ? object->texture : drawn.background;
        for (int c = 0; c < image.channels; ++c)
          *out++ = texture.at(x, y, c, static_cast<int>(drawn.random.below(kNoise)));
      }
    }
    return image;
  }

  Image mask(size_t index) const override {
    const Scene drawn = scene(index);
    Image mask = blank(1);
    uint8_t* out = mask.pixels.data();
    for (int y = 0; y < mask.height; ++y) {
      for (int x = 0; x < mask.width; ++x) {
        const Object* object = drawn.at(x, y);
        const int kind = object == nullptr ? 0 : class_names_.size() == 2 ? 1 : 1 + object->kind;
        *out++ = static_cast<uint8_t>(kind);
      }
    }
    return mask;
  }

  std::string describe(size_t index) const override {
    return "synthetic scenes " + spec_.split + "[" + std::to_string(index) + "]";
  }

 private:
  struct Scene {
    Random random;  ///< draws the scene first, then the noise of its pixels
    Texture background;
    std::vector<Object> objects;  ///< later ones lie on top

    const Object* at(int x, int y) const {
      const auto top = std::find_if(objects.rbegin(), objects.rend(), [&](const Object& s) { return s.covers(x, y); });
      return top == objects.rend() ? nullptr : &*top;
    }
  };

  Scene scene(size_t index) const {
    Scene scene{Random({spec_.seed, spec_.split == "train" ? 3u : 4u, index}), {}, {}};
    scene.background = draw_texture(scene.random, 2, 10);
    const int count = 1 + static_cast<int>(scene.random.below(4));
    for (int i = 0; i < count; ++i) scene.objects.push_back(draw_object(scene.random, spec_.image_size));
    return scene;
  }
};

}  // namespace

std::unique_ptr<Dataset> open_synthetic(const DatasetSpec& spec) {
  if (spec.labels == Labels::pixels) return std::make_unique<Scenes>(spec);
  return std::make_unique<Stripes>(spec);
}

}  // namespace octet
