// Images a second over batch or picture size as curves, an SVG file of its own.
#pragma once

#include <string>
#include <vector>

namespace octet {

struct SweepPoint {
  std::string engine;
  int size = 0, batch = 0;  ///< height and width of the pictures; 0: there is one for all
  double images_per_second = 0;
};

/// Over the batch, a curve each engine and size; where there is one batch, over the size, a curve each engine. There is
/// at least one point; which of its numbers are zero says what the axis is.
std::string svg_sweep(const std::string& title, const std::vector<SweepPoint>& points);

}  // namespace octet
