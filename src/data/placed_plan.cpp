// SPDX-License-Identifier: Apache-2.0
#include "src/data/placed_plan.h"

#include <algorithm>
#include <utility>

namespace octet {
namespace {

kernels::Bounds bounds_of(const Rectangle& r) { return {r.top, r.left, r.top + r.height, r.left + r.width}; }

/// Returns the rectangle with one place more on each side, where `whole` has them.
Rectangle grown(const Rectangle& r, const Rectangle& whole) {
  const int top = std::max(r.top - 1, whole.top), left = std::max(r.left - 1, whole.left);
  const int bottom = std::min(r.top + r.height + 1, whole.top + whole.height);
  const int right = std::min(r.left + r.width + 1, whole.left + whole.width);
  return {top, left, bottom - top, right - left};
}

TilePlan plan_tile(PictureFile picture, const Tile& tile, const Shown& shows) {
  const Placed& placed = tile.placed;
  const Rectangle& part = placed.part;
  const bool turned = !placed.turn.none();
  const Rectangle kept = turned ? grown(shows.seen, part) : shows.seen;
  TilePlan plan{std::move(picture), tile.index, {}, {}, {}};
  plan.tile = {.top = part.top,
               .left = part.left,
               .kept = bounds_of(kept),
               .seen = bounds_of(shows.seen),
               .reached = bounds_of(shows.reached),
               .colours = placed.colours,
               .back = shows.back.plane(),
               .turned = turned ? 1 : 0};
  const int before = kept.left - part.left, after = part.left + part.width - (kept.left + kept.width);
  plan.rows = part_of(triangle_filter(tile.size.height, part.height), kept.top - part.top, kept.height, false, 0);
  plan.columns =
      part_of(triangle_filter(tile.size.width, part.width), placed.flip ? after : before, kept.width, placed.flip, 0);
  return plan;
}

}  // namespace

PlacedPlan plan_placed(const Dataset& dataset, const std::vector<size_t>& others, size_t index, const Transform& t,
                       bool join, Random& random, Composition& composition) {
  std::vector<PictureFile> pictures;
  const auto size_of = [&](size_t i) {
    pictures.push_back(read_picture_file(dataset, i));
    return PictureSize{pictures.back().image.height, pictures.back().image.width};
  };
  composition = compose(index, t, join, {others, size_of}, random);
  PlacedPlan plan;
  plan.two = composition.mixed < composition.tiles.size();
  for (size_t i = 0; i < composition.tiles.size(); ++i) {
    const Tile& tile = composition.tiles[i];
    const Shown shows = shown(tile.placed, t);
    if (shows.reached.height > 0 && shows.reached.width > 0)
      plan.tiles.push_back(plan_tile(std::move(pictures[i]), tile, shows));
    if (i + 1 == composition.mixed) plan.mixed = plan.tiles.size();
  }
  return plan;
}

}  // namespace octet
