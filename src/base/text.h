// SPDX-License-Identifier: Apache-2.0
// Text for people: tables, numbers with units, UTF-8 that others wrote, words for a shell. The reports and every
// command of octet use these and no others.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octet {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::right;
};

/// A table in plain text: two spaces between columns, a line under the titles, no trailing spaces. Widths are counted
/// in UTF-8 code points.
class TextTable {
 public:
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// Adds a row with one cell for each column; cells are made printable(). A shorter row leaves the last columns empty,
  /// a longer one throws std::invalid_argument.
  void add_row(std::vector<std::string> cells);
  std::string render() const;
  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

size_t display_width(std::string_view text);  ///< number of UTF-8 code points
std::string with_thousands(long value);       ///< 12345678 -> "12,345,678"
std::string whole_number(double value);       ///< 1234.6 -> "1,235"; NaN and 1e15 or more as decimal() gives them
std::string human_count(double value);        ///< 41.1e6 -> "41.1 M"; below 1000: "41"
std::string human_bytes(double bytes);        ///< 1.1e6 -> "1.10 MB" (decimal units, as on disk labels)
std::string human_seconds(double seconds);    ///< 0.0123 -> "12.3 ms"; 75 -> "1 min 15 s"; 4000 -> "1 h 07 min"
std::string percent(double share, int decimals = 2);     ///< 0.9173 -> "91.73 %"
std::string decimal(double value, int significant = 3);  ///< 12.345 -> "12.3", 0.012345 -> "0.0123", 1234.5 -> "1,235"
std::string counted(long n, std::string_view one);       ///< 1, "code" -> "1 code"; 17 -> "17 codes"
/// 12.34 -> "12.3 dB"; infinity -> "lossless", -infinity -> "no signal", NaN -> "not finite".
std::string decibels(double db, std::string_view unit = " dB");

/// Returns the number of bytes of the UTF-8 sequence that `text`, which is not empty, begins with; 0 if it is invalid
/// (RFC 3629: no overlong forms, no surrogates, nothing beyond U+10FFFF).
size_t utf8_length(std::string_view text);

/// Returns a text file's contents without the byte order mark (U+FEFF) that some editors write first.
std::string without_byte_order_mark(std::string text);

/// Makes a name from a file safe for a terminal: '?' replaces every control character and every byte that is not UTF-8.
std::string printable(std::string_view text);

/// Like printable(), but keeps line ends. All that is written to a terminal goes through it, because messages quote
/// names from files unchanged.
std::string printable_lines(std::string_view text);

/// Splits at each separator and returns at least one part: "a,,b" at ',' gives "a", "", "b".
std::vector<std::string> split(const std::string& text, char separator);

/// Returns the word as a shell takes it, in single quotes where needed; for commands in messages.
std::string shell_word(const std::string& word);

}  // namespace octet
