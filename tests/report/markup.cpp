// SPDX-License-Identifier: Apache-2.0
#include "tests/report/markup.h"

#include <array>
#include <cctype>
#include <cstdint>
#include <utility>

namespace octet::testing {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 5> kEntities = {
    {{"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}}};

/// Decodes entities; an unknown one is an error.
std::string decode(const std::string& raw, std::string& error) {
  std::string text;
  for (size_t at = 0; at < raw.size();) {
    if (raw[at] != '&') {
      text += raw[at++];
      continue;
    }
    bool known = false;
    for (const auto& [entity, plain] : kEntities) {
      const std::string name = entity;
      if (raw.compare(at, name.size(), name) != 0) continue;
      text += plain;
      at += name.size();
      known = true;
      break;
    }
    if (!known) {
      error = "bare & before: " + raw.substr(at, 20);
      return text;
    }
  }
  return text;
}

/// Attributes must be name="value" with no < inside and only known entities.
void check_attributes(const std::string& inside, std::string& error) {
  size_t at = 0;
  while (at < inside.size() && error.empty()) {
    while (at < inside.size() && std::isspace(static_cast<unsigned char>(inside[at]))) ++at;
    if (at == inside.size()) return;
    const size_t quote = inside.find("=\"", at), end = quote == std::string::npos ? quote : inside.find('"', quote + 2);
    if (end == std::string::npos || inside.find_first_of(" <>'", at) < quote) {
      error = "bad attribute: " + inside.substr(at, 40);
      return;
    }
    decode(inside.substr(quote + 2, end - quote - 2), error);
    at = end + 1;
  }
}

}  // namespace

Markup parse_markup(const std::string& html) {
  Markup m;
  std::vector<std::string> open;
  size_t at = html.starts_with("<!DOCTYPE html>") ? 15 : 0;
  while (at < html.size() && m.error.empty()) {
    const size_t less = html.find('<', at);
    const std::string text = html.substr(at, less - at);
    if (open.empty() || open.back() != "style") m.text += decode(text, m.error);
    if (less == std::string::npos) break;
    const size_t greater = html.find('>', less);
    if (greater == std::string::npos) {
      m.error = "tag without end: " + html.substr(less, 40);
      break;
    }
    std::string tag = html.substr(less + 1, greater - less - 1);
    at = greater + 1;
    if (tag.starts_with("/")) {
      if (open.empty() || open.back() != tag.substr(1)) {
        m.error = "<" + tag + "> closes " + (open.empty() ? "nothing" : open.back());
        break;
      }
      open.pop_back();
      continue;
    }
    const bool closed = tag.ends_with("/");
    if (closed) tag.pop_back();
    const size_t end = tag.find_first_of(" \n");
    m.tags.push_back(tag.substr(0, end));
    if (end != std::string::npos) check_attributes(tag.substr(end), m.error);
    if (!closed) open.push_back(m.tags.back());
  }
  if (m.error.empty() && !open.empty()) m.error = "not closed: " + open.back();
  return m;
}

int occurrences(const std::string& text, const std::string& needle) {
  int count = 0;
  for (size_t at = text.find(needle); at != std::string::npos; at = text.find(needle, at + needle.size())) ++count;
  return count;
}

std::string from_base64(const std::string& text) {
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(letters.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

}  // namespace octet::testing
