// SPDX-License-Identifier: Apache-2.0
// The data.yaml beside YOLO's labels: names of classes, and folders of images (docs.ultralytics.com/datasets/detect).
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/data/file_tree.h"
#include "src/recipe/run.h"
#include "src/recipe/schema.h"

namespace octet {
namespace {

namespace fs = std::filesystem;

const YamlNode* find(const YamlNode& map, const std::string& key) {
  for (size_t i = 0; i < map.keys.size(); ++i)
    if (map.keys[i].text == key) return &map.items[i];
  return nullptr;
}

/// Returns the text of a key, "" if it is absent or empty.
std::string text_of(const YamlNode& root, const std::string& key, const std::string& file) {
  const YamlNode* node = find(root, key);
  if (node == nullptr || node->kind == YamlNode::Kind::null) return "";
  if (node->kind == YamlNode::Kind::scalar) return node->text;
  throw data_error(fmt::format("{}: {} is not one folder", place(file, *node), key));
}

/// Returns names of classes, which are a list or a map of their numbers.
std::vector<std::string> names_of(const YamlNode& root, const std::string& file) {
  const YamlNode* node = find(root, "names");
  std::vector<std::string> names;
  for (size_t i = 0; node != nullptr && i < node->items.size(); ++i) {
    if (node->kind == YamlNode::Kind::map && node->keys[i].text != std::to_string(i))
      throw data_error(
          fmt::format("{}: '{}' in the place of class {}", place(file, node->keys[i]), node->keys[i].text, i));
    if (node->items[i].kind != YamlNode::Kind::scalar)
      throw data_error(
          fmt::format("{}: class {} has no name; a name is one text, null in quotes", place(file, node->items[i]), i));
    names.push_back(node->items[i].text);
  }
  if (names.empty()) throw data_error(file + ": no names of classes");
  if (const std::string fault = names_fault(names); !fault.empty())
    throw data_error(fmt::format("{}: names: {}", file, fault));
  return names;
}

/// Returns the folder that a value means: below the tree's root; Roboflow's files begin values with a ".." too many.
std::string folder_of(const FileTree& tree, const std::string& value) {
  const bool above = value.starts_with("../") && !tree.is_folder(value) && !tree.is_file(value);
  return above ? value.substr(3) : value;
}

}  // namespace

void take_data_yaml(DatasetSpec& spec) {
  const FileTree tree(spec.path);
  const fs::path given = spec.path;
  const bool within = tree.in_archive() || fs::is_directory(given);
  const fs::path file = within ? fs::path(tree.describe("data.yaml")) : given;
  if (within ? !tree.is_file("data.yaml") : !fs::is_regular_file(file)) return;
  const std::string name = file.string();
  const std::string text = within ? tree.file("data.yaml").read() : read_file(name);
  const YamlNode root = parse_yaml(without_byte_order_mark(text), name);
  if (const YamlNode* points = find(root, "kpt_shape"))
    throw data_error(place(name, *points) + ": kpt_shape: the labels hold key points, which octet does not read");
  if (spec.classes.empty() && spec.class_names.empty()) spec.class_names = names_of(root, name);
  const fs::path folder = file.parent_path(), path = folder / text_of(root, "path", name);
  if (!tree.in_archive()) spec.path = (fs::is_directory(path) ? path : folder).string();
  if (const std::string value = text_of(root, spec.split, name); !value.empty())
    spec.split = folder_of(FileTree(spec.path), value);
}

}  // namespace octet
