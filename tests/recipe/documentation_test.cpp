// SPDX-License-Identifier: Apache-2.0
// recipes/README.md against the schema, and every shipped recipe against the parser.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <variant>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/net/graph.h"
#include "src/net/zoo.h"
#include "src/recipe/schema.h"
#include "tests/source_dir.h"

namespace octet {
namespace {

const std::string kRecipes = source_dir() + "/recipes";

/// The table row that documents a key; the struct's own default is the documented one.
std::string expected_row(const Field& field) {
  const std::string value = field.required ? "required" : fmt::format("`{}`", value_text(field, Recipe()));
  return fmt::format("| `{}` | {} | {} | {} | {} |", field.key, type_name(field), value, allowed(field), field.meaning);
}

TEST(RecipeReadme, HasExactlyTheRowsOfTheSchema) {
  std::multiset<std::string> documented, expected;
  std::istringstream readme(read_file(kRecipes + "/README.md"));
  for (std::string line; std::getline(readme, line);) {
    if (line.rfind("| `", 0) == 0) documented.insert(line);
  }
  for (const Field& field : schema()) expected.insert(expected_row(field));
  for (const std::string& row : expected) EXPECT_EQ(documented.count(row), 1u) << "add to recipes/README.md:\n" << row;
  for (const std::string& row : documented) EXPECT_EQ(expected.count(row), 1u) << "not in the schema:\n" << row;
}

TEST(Schema, EveryValueHasItsOwnKeyAndPlace) {
  std::set<std::string> keys;
  Recipe recipe;
  std::set<const void*> places;
  for (const Field& field : schema()) {
    EXPECT_TRUE(keys.insert(field.key).second) << field.key;
    EXPECT_FALSE(field.meaning.empty()) << field.key;
    if (std::holds_alternative<Choice>(field.slot)) continue;
    const void* place = std::visit(
        [&](const auto& slot) -> const void* {
          if constexpr (std::is_same_v<decltype(slot), const Choice&>)
            return nullptr;
          else
            return &slot(recipe);
        },
        field.slot);
    EXPECT_TRUE(places.insert(place).second) << field.key << " lives where another key does";
  }
}

/// Writes every word of every enum into a recipe of its own: it is read back, and no other key has changed.
TEST(Schema, EveryWordOfAnEnumIsItsKeysAlone) {
  const Recipe usual;
  int enums = 0;
  for (const Field& field : schema()) {
    if (!std::holds_alternative<Choice>(field.slot)) continue;
    ++enums;
    for (const std::string_view word : field.rule.choices) {
      YamlNode node;
      node.kind = YamlNode::Kind::scalar;
      node.text = word;
      Recipe recipe;
      assign(field, node, "r.yaml", recipe);
      const bool truth = word == "true" || word == "false";
      EXPECT_EQ(value_text(field, recipe), truth ? std::string(word) : yaml_scalar(std::string(word))) << field.key;
      EXPECT_EQ(recipe == usual, value_text(field, recipe) == value_text(field, usual)) << field.key << ": " << word;
      for (const Field& other : schema())
        if (other.key != field.key) EXPECT_EQ(value_text(other, recipe), value_text(other, usual)) << other.key;
    }
  }
  EXPECT_EQ(enums, 24);
}

/// "conv2d", "add", ...: every word in back quotes of the README's sentence that begins a line with `start`, as far as
/// an empty line.
std::multiset<std::string> words_of_sentence(const std::string& start) {
  std::istringstream readme(read_file(kRecipes + "/README.md"));
  std::multiset<std::string> words;
  bool inside = false;
  for (std::string line; std::getline(readme, line);) {
    if (line.empty()) inside = false;
    if (line.rfind(start, 0) == 0) inside = true;
    if (!inside) continue;
    const std::regex word("`([a-z0-9_]+)`");
    for (std::sregex_iterator i(line.begin(), line.end(), word), end; i != end; ++i) words.insert((*i)[1]);
  }
  return words;
}

/// An operator that the zoo can build and the recipe does not know, or that nobody documents.
TEST(Schema, OperatorsOfModelGraphAreThoseTheZooAccepts) {
  const std::multiset<std::string> accepted(written_ops().begin(), written_ops().end());
  EXPECT_EQ(words_of_sentence("Operators: "), accepted);
  // What is not listed is refused for its name, not for its shape.
  for (const Op op : all_ops()) {
    const std::string name(op_name(op));
    ModelSpec spec;
    spec.name = "graph";
    spec.graph = {{"node", name, {}, {}}};
    std::string refusal;
    try {
      build_model(spec);
    } catch (const Error& error) {
      refusal = error.what();
    }
    const bool is_made = refusal.find("is made") != std::string::npos;
    EXPECT_EQ(is_made, accepted.count(name) == 0) << name << ": " << refusal;
  }
}

TEST(Schema, AttributesOfModelGraphAreDocumented) {
  EXPECT_EQ(words_of_sentence("Attributes: "),
            std::multiset<std::string>(graph_attributes().begin(), graph_attributes().end()));
}

TEST(ShippedRecipes, AllAreReadAndNamedAfterModelAndData) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kRecipes)) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    const Recipe recipe = read_recipe(entry.path().string());
    const std::string stem = entry.path().stem().string();
    const std::string model = std::filesystem::path(recipe.model.onnx).stem().string();
    EXPECT_EQ(stem.rfind((model.empty() ? recipe.model.name : model) + "_", 0), 0u) << stem;
    const bool boxes = recipe.data.labels == Labels::boxes;
    const std::string data = boxes && recipe.data.path == "DeepPCB/PCBData" ? "deeppcb"
                             : boxes && recipe.data.path == "NEU-DET"       ? "neu_det"
                             : boxes                                        ? "bccd"
                             : stem.find("imagenet") != std::string::npos   ? "imagenet"
                             : stem.find("_camvid_") != std::string::npos   ? "camvid"
                                                                            : recipe.data.format;
    EXPECT_NE(stem.find("_" + data + "_"), std::string::npos) << stem;
    EXPECT_EQ(recipe.qat.epochs == 0, stem.find("_ptq") != std::string::npos) << stem;
    EXPECT_EQ(parse_recipe(write_recipe(recipe), stem), recipe) << stem;
    EXPECT_EQ(read_file(entry.path().string()).front(), '#') << stem << " says nothing about itself";
  }
  EXPECT_GE(count, 14);
}

}  // namespace
}  // namespace octet
