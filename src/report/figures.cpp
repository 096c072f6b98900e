// SPDX-License-Identifier: Apache-2.0
#include "src/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace octet {
namespace {

constexpr size_t kBarsInAChart = 32;  ///< as many as fit on a page
constexpr size_t kRowsOfCells = 48, kColumnsOfCells = 16;

/// Cuts `count` things into parts of at most `most` and nearly equal size. Returns where each part begins, and `count`.
std::vector<size_t> equal_parts(size_t count, size_t most) {
  const size_t parts = (count + most - 1) / most;
  std::vector<size_t> starts = {0};
  for (size_t p = 1; p <= parts; ++p) starts.push_back(count * p / parts);
  return starts;
}

/// Returns rows [r0, r1) and columns [c0, c1) of the map.
CellMap part_of(const CellMap& map, size_t r0, size_t r1, size_t c0, size_t c1) {
  CellMap part = map;
  part.rows = {map.rows.begin() + static_cast<long>(r0), map.rows.begin() + static_cast<long>(r1)};
  part.columns = {map.columns.begin() + static_cast<long>(c0), map.columns.begin() + static_cast<long>(c1)};
  part.values.clear();
  for (size_t r = r0; r < r1; ++r)
    for (size_t c = c0; c < c1; ++c) part.values.push_back(map.values[r * map.columns.size() + c]);
  const bool inside = map.strong_column && *map.strong_column >= c0 && *map.strong_column < c1;
  part.strong_column = inside ? std::optional(*map.strong_column - c0) : std::nullopt;
  return part;
}

}  // namespace

std::string html_cards(const std::vector<Card>& cards) {
  constexpr const char* kClasses[] = {"", "good", "bad", "plain"};
  std::string html = "<div class=\"cards\">\n";
  for (const Card& card : cards) {
    html += fmt::format(
        "<div class=\"card {}\"><span class=\"name\">{}</span><b>{}</b><span class=\"what\">{}</span></div>\n",
        kClasses[static_cast<size_t>(card.kind)], html_escape(card.name), html_escape(card.value),
        html_escape(card.what));
  }
  return html + "</div>\n";
}

std::string figure(const std::string& svg, const std::string& caption) {
  return "<figure>" + svg + (caption.empty() ? "" : "<figcaption>" + caption + "</figcaption>") + "</figure>\n";
}

std::string bar_figures(const BarChart& chart, const std::string& caption) {
  std::string html;
  for (size_t start = 0; start < chart.bars.size(); start += kBarsInAChart) {
    const size_t end = std::min(start + kBarsInAChart, chart.bars.size());
    BarChart part = chart;
    part.bars = {chart.bars.begin() + static_cast<long>(start), chart.bars.begin() + static_cast<long>(end)};
    html += figure(svg_bars(part), end == chart.bars.size() ? caption : "");
  }
  return html;
}

std::string decibel_figures(BarChart chart, const std::string& caption) {
  double largest = std::max(10.0, chart.hi), least = std::min(0.0, chart.lo);
  for (Bar& bar : chart.bars) {
    if (std::isfinite(bar.value)) {
      largest = std::max(largest, bar.value);
      least = std::min(least, bar.value);
    }
    bar.text = decibels(bar.value, "");
    bar.tooltip += ": " + decibels(bar.value);
    bar.colour = colour::kBlue;
  }
  chart.pitch = 16;
  chart.hi = std::ceil(largest / 10) * 10;
  if (least < 0) chart.lo = std::floor(least / 10) * 10;
  return bar_figures(chart, caption);
}

std::string cell_figures(const CellMap& map, const std::string& caption) {
  const std::vector<size_t> rows = equal_parts(map.rows.size(), kRowsOfCells),
                            columns = equal_parts(map.columns.size(), kColumnsOfCells);
  std::string html;
  for (size_t r = 0; r + 1 < rows.size(); ++r) {
    for (size_t c = 0; c + 1 < columns.size(); ++c) {
      const bool last = r + 2 == rows.size() && c + 2 == columns.size();
      html += figure(svg_cells(part_of(map, rows[r], rows[r + 1], columns[c], columns[c + 1])), last ? caption : "");
    }
  }
  return html;
}

std::string html_table(const TextTable& table, std::optional<size_t> strong) {
  std::string html = "<table class=\"stack\"><thead><tr>";
  for (const Column& column : table.columns())
    html += fmt::format("<th scope=\"col\"{}>{}</th>", column.align == Align::left ? " class=\"left\"" : "",
                        html_escape(column.title));
  html += "</tr></thead><tbody>\n";
  for (size_t r = 0; r < table.rows().size(); ++r) {
    html += fmt::format("<tr{}>", strong == r ? " class=\"ship\"" : "");
    for (size_t c = 0; c < table.columns().size(); ++c) {
      const Column& column = table.columns()[c];
      const std::string& cell = table.rows()[r][c];
      const std::string label = fmt::format(" data-label=\"{}\"{}", html_escape(column.title),
                                            column.align == Align::left ? " class=\"left\"" : "");
      html += c == 0 ? fmt::format("<th scope=\"row\"{}><span>{}</span></th>", label, html_breakable(cell))
                     : fmt::format("<td{}>{}</td>", label, html_escape(cell));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

std::string html_section(const std::string& id, const std::string& heading, const std::string& html) {
  return fmt::format("<section id=\"{}\"><h2>{}</h2>\n{}</section>\n", id, html_escape(heading), html);
}

std::string html_cards_page(const std::string& title, const std::string& what, const std::vector<Card>& cards,
                            const std::string& sections) {
  return html_page(title + ", " + what,
                   fmt::format("<header><h1>{}</h1>\n<p class=\"sub\">{}</p>\n{}</header>\n<main>\n{}</main>\n",
                               html_breakable(title), html_escape(what), html_cards(cards), sections));
}

}  // namespace octet
