// SPDX-License-Identifier: Apache-2.0
#include "src/data/compose.h"

#include <array>

namespace octet {
namespace {

size_t draw_other(const ImageSource& source, Random& random) {
  return source.others[random.below(static_cast<uint32_t>(source.others.size()))];
}

/// Adds an image alone or, in a share of all cases, a mosaic of it and three others.
void add_tiles(size_t index, const Transform& t, bool join, const ImageSource& source, Random& random,
               std::vector<Tile>& tiles) {
  const bool mosaic = join && t.mosaic > 0 && random.uniform(0, 1) < t.mosaic;
  const size_t first = tiles.size();
  tiles.push_back({index, source.size_of(index), {}});
  if (!mosaic) {
    tiles.back().placed = draw_placed(tiles.back().size, t, random);
    return;
  }
  std::array<PictureSize, 4> sizes = {tiles.back().size};
  for (size_t i = 1; i < sizes.size(); ++i) {
    const size_t other = draw_other(source, random);
    sizes[i] = source.size_of(other);
    tiles.push_back({other, sizes[i], {}});
  }
  const std::array<Placed, 4> placed = draw_mosaic(sizes, t, random);
  for (size_t i = 0; i < placed.size(); ++i) tiles[first + i].placed = placed[i];
}

}  // namespace

Composition compose(size_t index, const Transform& t, bool join, const ImageSource& source, Random& random) {
  Composition composition;
  add_tiles(index, t, join, source, random, composition.tiles);
  composition.mixed = composition.tiles.size();
  if (join && t.mixup > 0 && random.uniform(0, 1) < t.mixup)
    add_tiles(draw_other(source, random), t, join, source, random, composition.tiles);
  return composition;
}

void write_composition(std::span<const Image> images, const Composition& composition, const Transform& t,
                       uint8_t* out) {
  std::vector<Placed> placed;
  for (const Tile& tile : composition.tiles) placed.push_back(tile.placed);
  const size_t mixed = composition.mixed;
  const std::span<const Placed> all = placed;
  place(images.first(mixed), t, all.first(mixed), out);
  if (mixed < images.size()) {
    std::vector<uint8_t> second(static_cast<size_t>(t.height) * t.width * t.channels);
    place(images.subspan(mixed), t, all.subspan(mixed), second.data());
    for (size_t i = 0; i < second.size(); ++i) out[i] = static_cast<uint8_t>((out[i] + second[i] + 1) / 2);
  }
  if (t.order == ChannelOrder::bgr) exchange_red_and_blue(out, t.height, t.width);
}

}  // namespace octet
