// SPDX-License-Identifier: Apache-2.0
// Bench results as charts: times of layers as bars, images per second as curves. Each is a complete SVG file.
#pragma once

#include <string>
#include <vector>

namespace octet {

/// The times of a network's layers on one engine.
struct LayerSeries {
  std::string name, colour;
  std::vector<double> milliseconds;  ///< by layer; 0 where the series does not have the layer
  std::vector<std::string> notes;    ///< by layer, for the tooltip: the kernel
};

/// Returns a chart with one bar for each layer and series.
std::string svg_layer_bars(const std::string& title, const std::vector<std::string>& layers,
                           const std::vector<LayerSeries>& series);

/// Returns the colour of the n-th series.
std::string series_colour(size_t index);

/// A measured rate.
struct SweepPoint {
  std::string engine;
  int size = 0, batch = 0;  ///< height and width of images, and batch; 0 where all points have the same
  double images_per_second = 0;
};

/// Returns a chart of one or more points. If the points have a batch, it is over the batch, with one curve for each
/// engine and size; else over the size, with one curve for each engine.
std::string svg_sweep(const std::string& title, const std::vector<SweepPoint>& points);

}  // namespace octet
