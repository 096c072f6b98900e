// Text for people: aligned tables and numbers with units. One place for the reports and every command of octet.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octet {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::right;
};

/// A table in plain text: two spaces between columns, a rule under the titles, no trailing spaces. Widths count UTF-8
/// code points.
class TextTable {
 public:
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// One cell a column, shown as printable() (utf8.h); a shorter row leaves the rest empty, a longer one throws
  /// std::invalid_argument.
  void add_row(std::vector<std::string> cells);
  std::string render() const;
  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

size_t display_width(std::string_view text);          ///< UTF-8 code points
std::string with_thousands(long value);               ///< 12345678 -> "12,345,678"
std::string whole_number(double value);               ///< 1234.6 -> "1,235"; NaN and what is huge as decimal() has it
std::string human_count(double value);                ///< 41.1e6 -> "41.1 M"; below 1000: "41"
std::string human_bytes(double bytes);                ///< 1.1e6 -> "1.10 MB" (decimal units, as on disk labels)
std::string human_seconds(double seconds);            ///< 0.0123 -> "12.3 ms"; 75 -> "1 min 15 s"; 4000 -> "1 h 07 min"
std::string percent(double share, int decimals = 2);  ///< 0.9173 -> "91.73 %"
std::string decimal(double value, int significant = 3);  ///< 12.345 -> "12.3", 0.012345 -> "0.0123", 1234.5 -> "1,235"
std::string counted(long n, std::string_view one);       ///< 1, "code" -> "1 code"; 17 -> "17 codes"
/// 12.34 -> "12.3 dB"; infinite: "lossless", or "no signal"; NaN: "not finite".
std::string decibels(double db, std::string_view unit = " dB");

}  // namespace octet
