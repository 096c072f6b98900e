// SPDX-License-Identifier: Apache-2.0
#include "src/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace octet {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// One column on a phone, two for charts where they fit. SVG text is at least 9 px at 390 px of width, because a chart's
// viewBox is 400 units wide and its smallest letters are 10. On paper: black on white, nothing cut in two that fits on
// a page. tests/report/browser_test.cpp asks a browser.
constexpr const char* kPageStyle = R"css(
:root { --ink: #1c2530; --soft: #55606c; --line: #d9dee4; --wash: #f5f7f9; --good: #00694d; --bad: #a83c00; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 1100px; padding: 20px 16px 48px; background: #fff; color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 44px 0 6px; padding-top: 12px; border-top: 2px solid var(--ink); }
h3 { font-size: 1rem; margin: 24px 0 4px; }
p { margin: 6px 0 12px; max-width: 70ch; }
.sub, .note, figcaption { color: var(--soft); }
.note, figcaption { font-size: .85rem; }
.state { border-left: 4px solid var(--bad); background: var(--wash); padding: 8px 12px; max-width: none;
  overflow-wrap: anywhere; }
.state.running { border-left-color: var(--good); }
nav { margin: 12px 0 0; font-size: .9rem; }
nav a { color: #005a8e; margin-right: 14px; white-space: nowrap; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); gap: 12px; margin: 18px 0 0; }
.card { border: 1px solid var(--line); border-top: 4px solid #0072b2; border-radius: 4px; padding: 10px 14px 12px;
  overflow-wrap: anywhere; }
.card.good { border-top-color: #009e73; }
.card.bad { border-top-color: #d55e00; }
.card.plain { border-top-color: #7a828c; }
.card b { display: block; font-size: 1.75rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.card .name { font-size: .8rem; color: var(--soft); text-transform: uppercase; letter-spacing: .05em; }
.card .what { font-size: .9rem; }
.good-text { color: var(--good); font-weight: 600; }
.bad-text { color: var(--bad); font-weight: 600; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 380px), 1fr)); gap: 18px 28px; }
.figures.wide { grid-template-columns: minmax(0, 600px); }
figure { margin: 10px 0 0; min-width: 0; break-inside: avoid; }
.figures + table { margin-top: 16px; }
figcaption b { color: var(--ink); }
svg { display: block; width: 100%; height: auto; }
svg text.halo { paint-order: stroke; stroke: #fff; stroke-width: 3px; stroke-linejoin: round; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1c2530;
  font-variant-numeric: tabular-nums; }
.multiples { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 340px), 1fr)); gap: 20px 24px;
  margin-top: 12px; }
.layer { break-inside: avoid; min-width: 0; }
.layer h3 { margin: 0; font-size: .92rem; overflow-wrap: anywhere; }
.layer p { margin: 0 0 4px; font-size: .8rem; color: var(--soft); overflow-wrap: anywhere; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 12px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 8px; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
th:first-child, td:first-child, .left { text-align: left; }
tbody th { font-weight: 600; overflow-wrap: break-word; }
thead th { border-bottom: 2px solid var(--ink); font-weight: 600; vertical-align: bottom; }
td small { display: block; white-space: nowrap; color: var(--bad); }
tr.ship { background: #e8f2f9; }
tr.broken { background: #fdeee3; }
.images { display: grid; grid-template-columns: repeat(5, minmax(0, 1fr)); gap: 6px; margin: 8px 0; max-width: 760px; }
.images img { width: 100%; image-rendering: pixelated; display: block; }
.images.three { grid-template-columns: repeat(3, minmax(0, 1fr)); max-width: 1100px; }
.images.three img { image-rendering: auto; }
.key { display: inline-block; width: 1em; height: 1em; border: 1px solid var(--line); vertical-align: -.1em; }
dl { display: grid; grid-template-columns: minmax(90px, max-content) 1fr; gap: 4px 16px; font-size: .9rem; margin: 8px 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .82rem; }
pre { background: var(--wash); border: 1px solid var(--line); border-radius: 4px; padding: 10px 12px; margin: 8px 0;
  white-space: pre-wrap; overflow-wrap: anywhere; }
pre.recipe { columns: 2 340px; column-gap: 28px; }
@media screen and (max-width: 860px) {
  th, td { padding: 5px 4px; }
  table { font-size: .84rem; }
}
@media screen and (max-width: 700px) {
  body { padding: 16px 8px 32px; }
  h1 { font-size: 1.4rem; }
  .cards { grid-template-columns: 1fr 1fr; gap: 8px; }
  .card { padding: 8px 10px; }
  .card b { font-size: 1.3rem; }
  table.stack thead { display: none; }
  table.stack tr { display: grid; grid-template-columns: 1fr 1fr; gap: 0 18px; padding: 8px;
    border-bottom: 1px solid var(--line); }
  table.stack th, table.stack td { border: 0; padding: 1px 0; display: flex; justify-content: space-between; }
  table.stack tbody th { grid-column: 1 / -1; font-size: 1rem; }
  table.stack td.left { grid-column: 1 / -1; gap: 18px; }
  table.stack td::before, table.stack tbody th[data-label]::before { content: attr(data-label); color: var(--soft); }
  th, td { padding: 4px 5px; }
  table.stack { font-size: .9rem; }
}
@media print {
  @page { margin: 14mm; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  h2 { margin-top: 20px; }
  h2, h3, .lead { break-after: avoid; }
  tr, .card, figure, .layer, pre.command { break-inside: avoid; }
  pre.recipe { columns: 2; font-size: 7.5pt; }
  thead { display: table-header-group; }
  .cards { grid-template-columns: repeat(4, 1fr); gap: 8px; }
  .card { padding: 6px 8px; }
  .card b { font-size: 15pt; }
  .figures { grid-template-columns: 1fr 1fr; }
  .figures.wide { grid-template-columns: minmax(0, 130mm); }
  .multiples { grid-template-columns: 1fr 1fr; }
  table { font-size: 8.5pt; }
  th, td { padding: 3px 5px; }
}
)css";

}  // namespace

std::string html_escape(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (length == 0 || first == 0x7F || (first < 0x20 && first != '\n' && first != '\t')) {
      escaped += kReplacement;
    } else if (first == '&') {
      escaped += "&amp;";
    } else if (first == '<') {
      escaped += "&lt;";
    } else if (first == '>') {
      escaped += "&gt;";
    } else if (first == '"') {
      escaped += "&quot;";
    } else if (first == '\'') {
      escaped += "&#39;";
    } else {
      escaped += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return escaped;
}

std::string html_unescape(std::string html) {
  const std::pair<std::string_view, std::string_view> entities[] = {
      {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};  // & last: it begins all
  for (const auto& [entity, text] : entities)
    for (size_t at = 0; (at = html.find(entity, at)) != std::string::npos; at += text.size())
      html.replace(at, entity.size(), text);
  return html;
}

std::string html_breakable(std::string_view text) {
  std::string html;
  for (const char c : html_escape(text)) {
    html += c;
    // No break after - and ;, since ; ends entities and names read badly when cut at -.
    if (c == '.' || c == '_' || c == '/') html += "<wbr/>";
  }
  return html;
}

std::string html_page(std::string_view title, std::string_view body, int reload_seconds) {
  const std::string reload = reload_seconds > 0 ? fmt::format("{} content=\"{}\"/>\n", kReload, reload_seconds) : "";
  return fmt::format(R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
{}<title>{}</title>
<style>{}</style>
</head>
<body>
{}</body>
</html>
)",
                     reload, html_escape(title), kPageStyle, body);
}

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
