// YAML text to a plain tree with line and column of every value. The subset recipes need: one document, no anchors,
// aliases or tags, at most 16 levels; anything else is refused, so that no hostile text costs more than its own length.
#pragma once

#include <string>
#include <vector>

namespace octet {

struct YamlNode {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  int line = 0, column = 0;     ///< from 1; 0: not from a file
  std::string text;             ///< scalar
  bool quoted = false;          ///< scalar: written in quotes (or as a block), so it is text, never a number
  std::vector<YamlNode> keys;   ///< map: scalars
  std::vector<YamlNode> items;  ///< list: elements; map: values, one a key
};

/// Throws Error(usage) "name:line:column: what". Empty text gives a null node.
YamlNode parse_yaml(const std::string& text, const std::string& name);

/// "name:line:column", or "name" for a node that is not from a file.
std::string place(const std::string& name, const YamlNode& node);

/// Whether `text` is valid UTF-8 without control characters; `multiline` allows tab and line ends.
bool is_clean_text(const std::string& text, bool multiline);

/// `text` as a YAML scalar, quoted where needed; clean text only.
std::string yaml_scalar(const std::string& text);

}  // namespace octet
