#include "src/common/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "src/common/utf8.h"

namespace octet {

void TextTable::add_row(std::vector<std::string> cells) {
  if (cells.size() > columns_.size()) throw std::invalid_argument("TextTable: more cells than columns");
  for (std::string& cell : cells) cell = printable(cell);
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::render() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = display_width(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[c]));
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](auto&& cell) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& value = cell(c);
      const std::string space(widths[c] - display_width(value), ' ');
      if (c > 0) line += "  ";
      line += columns_[c].align == Align::right ? space + value : value + space;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([&](size_t c) -> const std::string& { return columns_[c].title; });
  size_t total = 0;
  for (size_t c = 0; c < widths.size(); ++c) total += widths[c] + (c > 0 ? 2 : 0);
  text += std::string(total, '-') + "\n";
  for (const auto& row : rows_) add_line([&](size_t c) -> const std::string& { return row[c]; });
  return text;
}

size_t display_width(std::string_view text) {
  // Continuation bytes of UTF-8 are 10xxxxxx; every other byte starts a code point.
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string whole_number(double value) {
  return std::abs(value) < 1e15 ? with_thousands(std::lround(value)) : decimal(value);  // NaN is not below
}

std::string with_thousands(long value) {
  std::string digits = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

namespace {

/// value with the largest of the units (each 1000 times the one before) that leaves at least 1 before the point.
std::string scaled(double value, const std::array<const char*, 5>& units) {
  size_t unit = 0;
  // 999.5 would print as "1000" of the smaller unit.
  while (unit + 1 < units.size() && std::abs(value) >= 999.5) {
    value /= 1000;
    ++unit;
  }
  return decimal(value) + units[unit];
}

}  // namespace

std::string human_count(double value) {
  if (std::abs(value) < 1000) return fmt::format("{:.0f}", value);
  return scaled(value, {"", " k", " M", " G", " T"});
}

std::string human_bytes(double bytes) {
  if (std::abs(bytes) < 1000) return fmt::format("{:.0f} B", bytes);
  return scaled(bytes, {" B", " kB", " MB", " GB", " TB"});
}

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds < 0.9995e-3) return decimal(seconds * 1e6) + " \xC2\xB5s";
  if (seconds < 0.9995) return decimal(seconds * 1e3) + " ms";
  if (seconds < 59.95) return decimal(seconds) + " s";
  if (seconds >= 1e15) return decimal(seconds) + " s";
  const long whole = std::lround(seconds);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string percent(double share, int decimals) { return fmt::format("{:.{}f} %", 100 * share, decimals); }

std::string decimal(double value, int significant) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (value == 0) return "0";
  if (std::abs(value) >= 9.995e5 || std::abs(value) < 1e-4) return fmt::format("{:.{}g}", value, significant);
  // The exponent after rounding: 0.9996 has three digits as 1.00.
  const std::string rounded = fmt::format("{:.{}e}", value, significant - 1);
  const int magnitude = std::stoi(rounded.substr(rounded.find('e') + 1));
  const int decimals = std::max(0, significant - 1 - magnitude);
  if (decimals == 0) return with_thousands(std::lround(value));
  return fmt::format("{:.{}f}", value, decimals);
}

std::string counted(long n, std::string_view one) {
  return fmt::format("{} {}{}", with_thousands(n), one, n == 1 ? "" : "s");
}

std::string decibels(double db, std::string_view unit) {
  if (std::isnan(db)) return "not finite";
  if (std::isinf(db)) return db > 0 ? "lossless" : "no signal";
  return fmt::format("{:.1f}{}", db, unit);
}

}  // namespace octet
