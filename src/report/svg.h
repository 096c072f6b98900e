// Charts as inline SVG: plain data in, text out. A chart is 400 units wide and scales with its column; every mark has a
// <title>, which browsers show as a tooltip and screen readers speak. Text is escaped here.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/quant/layer_statistics.h"

namespace octet {

inline constexpr double kChartWidth = 400;

struct Bar {
  std::string label, text;  ///< text: the value as printed at the bar's end
  double value = 0;
  std::string tooltip;
  std::string colour;
};

struct BarChart {
  std::string title;    ///< for screen readers
  std::string heading;  ///< as of LineChart
  std::vector<Bar> bars;
  double lo = 0, hi = 1;   ///< ends of the axis; lo != 0 draws a broken axis and says so
  std::string axis_label;  ///< "top-1, %"
  double pitch = 22;       ///< height of a row
};
std::string svg_bars(const BarChart& chart);

struct Line {
  std::string name, colour;
  bool dashed = false;
  std::vector<double> x, y;  ///< of equal length; non-finite points are left out
};

struct Band {  ///< a named stretch of the x axis, shaded when `shaded`
  std::string name;
  double lo = 0, hi = 0;
  bool shaded = false;
};

struct LineChart {
  std::string title, x_label, y_label;
  std::string heading;  ///< above the legend, in as many lines as it needs: for a file without a page around it
  std::vector<Line> lines;
  std::vector<Band> bands;
};
std::string svg_lines(const LineChart& chart);

struct HeatMap {
  std::string title;
  std::vector<std::string> labels;  ///< one a class
  std::vector<long> counts;         ///< [classes, classes], row: label
};
std::string svg_heat_map(const HeatMap& map);

struct CellMap {
  std::string title, row_name, column_name;  ///< "layer", "bits of the plan"
  std::vector<std::string> rows, columns;
  std::vector<int> values;              ///< [rows, columns]
  std::vector<int> scale;               ///< what values there are, from light to dark
  std::optional<size_t> strong_column;  ///< is framed
};
/// A number in each cell.
std::string svg_cells(const CellMap& map);

/// Counts on a square-root scale (a ReLU's spike at 0 would flatten everything else), at most 64 bars; 200 units wide.
std::string svg_histogram(const Histogram& histogram, const std::string& title, const std::string& colour);

/// A chart as a file of its own, with what a page has for its charts: the namespace, a font, a white ground.
std::string svg_file(std::string chart);

// Parts that the charts share.

enum class Anchor { start, middle, end };

/// Collects shapes and writes one <svg>.
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
    std::string fill;   ///< empty: the page's ink
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

/// Writes a heading from the canvas' top on, in as many lines as it needs; with a null canvas it only measures. Returns
/// the height used.
double draw_heading(const std::string& heading, Canvas* canvas);

/// Round numbers (1, 2 or 5 times a power of ten apart) within [lo, hi], about `count` of them.
std::vector<double> nice_ticks(double lo, double hi, int count);

/// Tick labels with as many decimals as their distance needs.
std::vector<std::string> tick_labels(const std::vector<double>& ticks);

struct Rgb {
  double r, g, b;
};
/// From white (0) to the hue (1).
std::string shade(const Rgb& hue, double strength);

/// Width in chart units that text of that size needs, estimated from its characters.
double text_width(std::string_view text, double size);

/// The text, or its start and an ellipsis, so that it fits.
std::string fit_text(std::string_view text, double width, double size);

/// The text in lines that fit, parted at spaces; a word that is longer than a line has one for itself.
std::vector<std::string> wrap_text(const std::string& text, double width, double size);

}  // namespace octet
