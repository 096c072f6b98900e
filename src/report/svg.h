// SPDX-License-Identifier: Apache-2.0
// Charts as inline SVG: plain data in, text out. A chart is 400 units wide and scales with its column. Every mark has a
// <title>, which browsers show as a tooltip and screen readers speak. Texts are escaped here, not by the caller.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/quant/layer_statistics.h"

namespace octet {

inline constexpr double kChartWidth = 400;

struct Bar {
  std::string label;  ///< before the bar
  std::string text;   ///< the value, printed at the bar's end
  double value = 0;
  std::string tooltip;
  std::string colour;
};

struct BarChart {
  std::string title;    ///< for screen readers
  std::string heading;  ///< as LineChart::heading
  std::vector<Bar> bars;
  double lo = 0, hi = 1;   ///< ends of the axis; with lo != 0 the axis is drawn broken and says so
  std::string axis_label;  ///< "top-1, %"
  double pitch = 22;       ///< height of a bar's row
};
std::string svg_bars(const BarChart& chart);

struct Line {
  std::string name, colour;
  bool dashed = false;
  std::vector<double> x, y;  ///< of equal length; points that are not finite are left out
};

/// A named interval of the x axis.
struct Band {
  std::string name;
  double lo = 0, hi = 0;
  bool shaded = false;
};

struct LineChart {
  std::string title, x_label, y_label;
  std::string heading;  ///< above the legend, for a chart that stands alone in a file; wrapped to lines
  std::vector<Line> lines;
  std::vector<Band> bands;
};
std::string svg_lines(const LineChart& chart);

/// A confusion matrix.
struct HeatMap {
  std::string title;
  std::vector<std::string> labels;  ///< one for each class
  std::vector<long> counts;         ///< [classes, classes], row: label
};
std::string svg_heat_map(const HeatMap& map);

/// A table of integers, coloured by value.
struct CellMap {
  std::string title, row_name, column_name;  ///< "layer", "bits of the plan"
  std::vector<std::string> rows, columns;
  std::vector<int> values;              ///< [rows, columns]
  std::vector<int> scale;               ///< the values that occur, from light to dark
  std::optional<size_t> strong_column;  ///< the column with a frame
};
std::string svg_cells(const CellMap& map);

/// Returns a chart 200 units wide with at most 64 bars. Counts are on a square-root scale, since a ReLU's spike at 0
/// would flatten everything else.
std::string svg_histogram(const Histogram& histogram, const std::string& title, const std::string& colour);

/// Returns the chart as a file of its own: adds the XML namespace, a font and a white background.
std::string svg_file(std::string chart);

enum class Anchor { start, middle, end };

/// Collects shapes and returns them as one <svg> element.
class Canvas {
 public:
  Canvas(double width, double height, std::string title) : width_(width), height_(height), title_(std::move(title)) {}
  struct Box {
    double x = 0, y = 0, width = 0, height = 0;
  };
  struct Style {
    std::string fill, stroke = "none";
    double stroke_width = 1;
    std::string dash;  ///< "4 3"; empty: solid
  };
  struct TextStyle {
    double size = 11;
    Anchor anchor = Anchor::start;
    std::string fill;   ///< empty: the page's text colour
    double rotate = 0;  ///< degrees about the text's point
    bool strong = false;
    bool halo = false;  ///< white outline, for text over grid lines
  };
  void rect(const Box& box, const Style& style, std::string_view tooltip = "");
  void path(std::string_view d, const Style& style, std::string_view tooltip = "");
  void text(double x, double y, std::string_view text, const TextStyle& style, std::string_view tooltip = "");
  void dot(double x, double y, const std::string& fill, std::string_view tooltip);
  std::string str() const;

 private:
  double width_, height_;
  std::string title_, body_;
};

/// Writes a heading at the canvas' top, in as many lines as it needs, and returns its height. With a null canvas it
/// only measures.
double draw_heading(const std::string& heading, Canvas* canvas);

/// Returns about `count` round numbers within [lo, hi], spaced by 1, 2 or 5 times a power of ten.
std::vector<double> nice_ticks(double lo, double hi, int count);

/// Returns the ticks as text, with as many decimals as their spacing needs.
std::vector<std::string> tick_labels(const std::vector<double>& ticks);

struct Rgb {
  double r, g, b;
};
/// Returns a colour between white (strength 0) and the hue (strength 1).
std::string shade(const Rgb& hue, double strength);

/// Returns the width of text in chart units, estimated from the number of its characters.
double text_width(std::string_view text, double size);

/// Returns the text, or its start and an ellipsis if it is wider than `width`.
std::string fit_text(std::string_view text, double width, double size);

/// Returns the text in lines of at most `width`, broken at spaces; a longer word gets a line for itself.
std::vector<std::string> wrap_text(const std::string& text, double width, double size);

}  // namespace octet
