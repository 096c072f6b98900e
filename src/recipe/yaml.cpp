// SPDX-License-Identifier: Apache-2.0
#include "src/recipe/schema.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <cstdint>
#include <set>
#include <sstream>

#include "src/base/error.h"
#include "src/base/text.h"

namespace octet {
namespace {

constexpr size_t kMaxDepth = 16;

/// Builds the tree from yaml-cpp's events, which unlike YAML::Node still show aliases, duplicate keys and quotes.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& name) : name_(name) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_extras(mark, "?", anchor);
    add(make(mark, YamlNode::Kind::null));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse(mark, "aliases (*name) are not supported"); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_extras(mark, tag, anchor);
    YamlNode node = make(mark, YamlNode::Kind::scalar);
    node.text = value;
    node.quoted = tag == "!";
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::map);
  }
  void OnMapEnd() override { close(); }

  YamlNode root;

 private:
  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& what) {
    throw usage_error(place(name_, make(mark, YamlNode::Kind::null)) + ": " + what);
  }

  void refuse_extras(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) refuse(mark, "anchors (&name) are not supported");
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, "tags (!type) are not supported");
  }

  static YamlNode make(const YAML::Mark& mark, YamlNode::Kind kind) {
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    refuse_extras(mark, tag, anchor);
    if (open_.size() >= kMaxDepth) refuse(mark, "nested deeper than " + std::to_string(kMaxDepth) + " levels");
    open_.push_back(make(mark, kind));
  }

  void close() {
    YamlNode node = std::move(open_.back());
    open_.pop_back();
    add(std::move(node));
  }

  void add(YamlNode node) {
    if (open_.empty()) {
      root = std::move(node);
      return;
    }
    YamlNode& parent = open_.back();
    const bool is_key = parent.kind == YamlNode::Kind::map && parent.keys.size() == parent.items.size();
    if (is_key && node.kind != YamlNode::Kind::scalar) {
      throw usage_error(place(name_, node) + ": a key must be a word");
    }
    (is_key ? parent.keys : parent.items).push_back(std::move(node));
  }

  const std::string& name_;
  std::vector<YamlNode> open_;
};

}  // namespace

std::string place(const std::string& name, const YamlNode& node) {
  if (node.line == 0) return name;
  return name + ":" + std::to_string(node.line) + ":" + std::to_string(node.column);
}

bool is_clean_text(const std::string& text, bool multiline) {
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<uint8_t>(text[i]);
    const bool line_character = c == '\t' || c == '\n' || c == '\r';
    if ((c < 0x20 && !(multiline && line_character)) || c == 0x7F) return false;
    const size_t length = utf8_length(std::string_view(text).substr(i));
    // U+0080..U+009F are control characters, U+2028/9 line ends, U+FEFF a byte order mark.
    const std::string_view sequence = std::string_view(text).substr(i, length);
    const bool control = c == 0xC2 && length == 2 && static_cast<uint8_t>(text[i + 1]) < 0xA0;
    if (length == 0 || control || sequence == "\u2028" || sequence == "\u2029" || sequence == "\uFEFF") return false;
    i += length;
  }
  return true;
}

std::string yaml_scalar(const std::string& text) {
  static const std::set<std::string> kWords = {"true", "false", "null", "Null", "NULL", "yes", "no", "on", "off"};
  bool plain = !text.empty() && text.front() != '-' && kWords.count(text) == 0;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    plain = plain && (letter || c == '_' || c == '.' || c == '/' || c == '-');
  }
  if (plain) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

YamlNode parse_yaml(const std::string& text, const std::string& name) {
  if (!is_clean_text(text, true)) {
    throw usage_error(name + ": not a text file: recipes are UTF-8 without control characters");
  }
  std::istringstream stream(text);
  TreeBuilder builder(name);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return {};
    YamlNode root = std::move(builder.root);
    if (parser.HandleNextDocument(builder)) {
      throw usage_error(place(name, builder.root) + ": a second document; a recipe is one");
    }
    return root;
  } catch (const YAML::Exception& error) {
    YamlNode at;
    if (!error.mark.is_null()) {
      at.line = error.mark.line + 1;
      at.column = error.mark.column + 1;
    }
    throw usage_error(place(name, at) + ": not YAML: " + error.msg);
  }
}

}  // namespace octet
