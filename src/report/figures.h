// What pages are put together from: cards, charts with captions, tables.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "src/common/text_table.h"
#include "src/report/svg.h"

namespace octet {

struct Card {
  enum class Kind { usual, good, bad, plain };  ///< plain: nothing is compared
  Kind kind = Kind::usual;
  std::string name, value, what;
};
std::string html_cards(const std::vector<Card>& cards);

/// `caption`: HTML; empty: none.
std::string figure(const std::string& svg, const std::string& caption = "");

/// The chart, or as many of the same axis as a page has room for bars; the caption stands under the last.
std::string bar_figures(const BarChart& chart, const std::string& caption = "");

/// bar_figures() of signal to quantization noise: bars have a label, a value and what the tooltip says before it; the
/// axis ends at `hi` or where the longest needs it, and starts at `lo`, or below 0 where more is noise than signal.
std::string decibel_figures(BarChart chart, const std::string& caption = "");

/// The map, or as many as a page has room for rows and columns; the caption stands under the last.
std::string cell_figures(const CellMap& map, const std::string& caption = "");

/// The table that a terminal shows, cells named for a phone. `strong`: the row that stands out.
std::string html_table(const TextTable& table, std::optional<size_t> strong = std::nullopt);

/// `html`: what stands under the heading.
std::string html_section(const std::string& id, const std::string& heading, const std::string& html);

/// A whole page. `what`: it shows of `title`; `sections`: HTML.
std::string html_cards_page(const std::string& title, const std::string& what, const std::vector<Card>& cards,
                            const std::string& sections);

}  // namespace octet
