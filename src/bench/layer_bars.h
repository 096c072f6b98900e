// Times of layers as bars, an SVG file of its own.
#pragma once

#include <string>
#include <vector>

namespace octet {

/// One bar a layer and series; a value of 0 is a layer that the series does not have.
struct LayerSeries {
  std::string name, colour;
  std::vector<double> milliseconds;  ///< one a layer
  std::vector<std::string> notes;    ///< one a layer, for the tooltip: the kernel
};

/// Rows of `layers`, a bar each series.
std::string svg_layer_bars(const std::string& title, const std::vector<std::string>& layers,
                           const std::vector<LayerSeries>& series);

/// The colour of the n-th series.
std::string series_colour(size_t index);

}  // namespace octet
