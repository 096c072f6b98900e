// SPDX-License-Identifier: Apache-2.0
// A small reader of markup for tests: is every tag closed, in order, and what is in it.
#pragma once

#include <string>
#include <vector>

namespace octet::testing {

struct Markup {
  std::string error;              ///< empty: tags balance and every & starts a known entity
  std::vector<std::string> tags;  ///< names of all elements, in order of opening
  std::string text;               ///< content outside tags, entities decoded; <style> left out
};
Markup parse_markup(const std::string& html);

/// Bytes of a text of RFC 4648.
std::string from_base64(const std::string& text);

/// How often `needle` occurs.
int occurrences(const std::string& text, const std::string& needle);

}  // namespace octet::testing
