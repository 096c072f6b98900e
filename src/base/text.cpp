// SPDX-License-Identifier: Apache-2.0
#include "src/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

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

/// Returns the value in the largest unit, each 1000 times the one before, in which it is at least 1.
std::string scaled(double value, const std::array<const char*, 5>& units) {
  size_t unit = 0;
  // 999.5 would be printed as "1000" of the smaller unit.
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

size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF && continues(1)) return 2;
  if (first >= 0xE0 && first <= 0xEF && continues(1) && continues(2)) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0, surrogate = first == 0xED && byte(1) > 0x9F;
    return overlong || surrogate ? 0 : 3;
  }
  if (first >= 0xF0 && first <= 0xF4 && continues(1) && continues(2) && continues(3)) {
    const bool overlong = first == 0xF0 && byte(1) < 0x90, too_large = first == 0xF4 && byte(1) > 0x8F;
    return overlong || too_large ? 0 : 4;
  }
  return 0;
}

namespace {

std::string shown_as(std::string_view text, bool keep_line_ends) {
  std::string shown;
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    const size_t length = utf8_length(text);
    const bool c0 = (first < 0x20 && !(keep_line_ends && first == '\n')) || first == 0x7F;
    const bool c1 = length == 2 && first == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0;  // U+0080 to U+009F
    if (length == 0 || c0 || c1) {
      shown += '?';
    } else {
      shown += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return shown;
}

}  // namespace

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

std::string without_byte_order_mark(std::string text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.erase(0, kMark.size());
  return text;
}

std::string printable(std::string_view text) { return shown_as(text, false); }

std::string printable_lines(std::string_view text) { return shown_as(text, true); }

std::string shell_word(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char letter : word) quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  return quoted + "'";
}

}  // namespace octet
