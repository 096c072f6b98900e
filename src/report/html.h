// SPDX-License-Identifier: Apache-2.0
// HTML as text: escaping, whole pages with their style sheet, and the parts that pages are put together from.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/text.h"
#include "src/report/svg.h"

namespace octet {

struct Report;
struct Row;

/// Escapes text for element content and quoted attributes: & < > " '. Control characters, which XML forbids, and broken
/// UTF-8 become U+FFFD.
std::string html_escape(std::string_view text);
/// Returns the text whose html_escape() is `html`, up to what that replaced.
std::string html_unescape(std::string html);

/// Escapes text and allows line breaks after . _ and /, for the long names of layers and runs.
std::string html_breakable(std::string_view text);

/// Returns a whole page around `body`, which is HTML. The page is well-formed XML, too. It loads nothing, except itself
/// again if `reload_seconds` is not 0.
std::string html_page(std::string_view title, std::string_view body, int reload_seconds = 0);

/// The start of the element that makes a browser load the page again.
inline constexpr std::string_view kReload = "<meta http-equiv=\"refresh\"";

/// Okabe & Ito's palette (2008), which every kind of colour vision can distinguish.
namespace colour {
inline constexpr const char* kBlue = "#0072b2";
inline constexpr const char* kOrange = "#e69f00";
inline constexpr const char* kGreen = "#009e73";
inline constexpr const char* kVermillion = "#d55e00";
inline constexpr const char* kSky = "#56b4e9";
inline constexpr const char* kGrey = "#7a828c";
}  // namespace colour

/// A figure in large type with its name above and an explanation below.
struct Card {
  enum class Kind { usual, good, bad, plain };  ///< plain: nothing is compared
  Kind kind = Kind::usual;
  std::string name, value, what;
};
std::string html_cards(const std::vector<Card>& cards);

/// Returns a chart as a figure; `caption` is HTML and may be empty.
std::string figure(const std::string& svg, const std::string& caption = "");

/// Returns the chart, cut into several with the same axis if it has more bars than fit on a page. The last one has the
/// caption.
std::string bar_figures(const BarChart& chart, const std::string& caption = "");

/// Returns bar_figures() of signal to quantization noise in dB. Bars need a label, a value and the start of their
/// tooltip. The axis goes from `lo`, or below 0 where there is more noise than signal, to `hi` or the longest bar.
std::string decibel_figures(BarChart chart, const std::string& caption = "");

/// Returns the map, cut into several if it has more rows or columns than fit on a page. The last one has the caption.
std::string cell_figures(const CellMap& map, const std::string& caption = "");

/// Returns a table for terminals as HTML; on a phone each cell shows its column's name. `strong` is a row to highlight.
std::string html_table(const TextTable& table, std::optional<size_t> strong = std::nullopt);

/// Returns a section with a heading; `html` is its content.
std::string html_section(const std::string& id, const std::string& heading, const std::string& html);

/// Returns a whole page with cards at its top. `what` says what the page shows of `title`; `sections` is HTML.
std::string html_cards_page(const std::string& title, const std::string& what, const std::vector<Card>& cards,
                            const std::string& sections);

/// Returns the columns of the evaluation table after the network's name, and a row's cells there. dash: stands where
/// nothing was measured.
std::vector<std::string> evaluation_columns(const Report& report);
std::vector<std::string> evaluation_cells(const Row& row, const std::string& dash);

/// Returns cards of what int8 costs and gains: score, differing codes, size and speed, as far as they are known.
std::vector<Card> result_cards(const Report& report);

/// Returns the score of every row as bars.
BarChart accuracy_chart(const Report& report);

// Sections of the page that report_html() writes. Each is "" if the report has nothing to show there.
std::string images_section(const Report& report);     ///< test images of a segmentation, their labels and predictions
std::string training_section(const Report& report);   ///< loss, score and learning rate by epoch
std::string layers_section(const Report& report);     ///< SQNR bars, histograms
std::string classes_section(const Report& report);    ///< IoU of segmentations, of detectors AP and precision by recall
std::string confusion_section(const Report& report);  ///< a heat map, or the most confused pairs of classes

}  // namespace octet
