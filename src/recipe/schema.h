// SPDX-License-Identifier: Apache-2.0
// How a recipe's text becomes a Recipe: YAML with the place of each value, the one table of keys, the checks of a
// single value, and the checks of values that must fit each other. Used within src/recipe, and by its tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "src/base/names.h"
#include "src/recipe/recipe.h"

namespace octet {

/// A value of a YAML document. Only the subset that recipes need is read: one document, no anchors, aliases or tags, at
/// most 16 levels. Anything else is refused, so hostile text costs no more than its own length.
struct YamlNode {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  int line = 0, column = 0;     ///< from 1; 0: not from a file
  std::string text;             ///< scalar
  bool quoted = false;          ///< scalar: written in quotes or as a block, so it is text, never a number
  std::vector<YamlNode> keys;   ///< map: scalars
  std::vector<YamlNode> items;  ///< list: elements; map: values, one for each key
};

/// Returns the document; empty text gives a null node. Throws Error(usage) "name:line:column: what".
YamlNode parse_yaml(const std::string& text, const std::string& name);

/// Returns "name:line:column", or "name" for a node that is not from a file.
std::string place(const std::string& name, const YamlNode& node);

/// Returns whether `text` is valid UTF-8 without control characters; `multiline` allows tabs and line ends.
bool is_clean_text(const std::string& text, bool multiline);

/// Returns clean text as a YAML scalar, quoted where needed.
std::string yaml_scalar(const std::string& text);

/// What a value, or each element of a list, may be: one of the choices, or a number of the interval.
struct Rule {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool above_minimum = false;  ///< the minimum itself is not allowed
  bool below_maximum = false;  ///< the maximum itself is not allowed
  std::vector<std::string_view> choices;
};

/// Returns a reference to a value inside a recipe. The alternative of a Slot is the key's type; a number that may be
/// empty is written "auto" then.
template <class T>
using Reference = std::function<T&(Recipe&)>;

/// A member of a recipe whose type is an enum: its value is known by its row in the enum's table of names, which are
/// the choices of the key's Rule.
struct Choice {
  std::function<size_t(const Recipe&)> row;
  std::function<void(Recipe&, size_t)> choose;
};

using Slot = std::variant<Reference<bool>, Reference<int>, Reference<uint64_t>, Reference<double>,
                          Reference<std::optional<double>>, Reference<std::string>, Reference<std::vector<int>>,
                          Reference<std::vector<double>>, Reference<std::vector<std::string>>,
                          Reference<std::vector<NodeSpec>>, Reference<std::vector<LayerBits>>, Choice>;

/// A key of a recipe: where its value lives, what is allowed and what it means.
struct Field {
  std::string key;  ///< "qat.epochs"; "seed" has no section
  Slot slot;
  Rule rule;
  std::string meaning;    ///< one line, for recipes/README.md
  bool required = false;  ///< must be in the file or set by an override
};

// Rules for numbers in [low, high]; [low, infinity); (low, high]; [low, high).
inline Rule range(double low, double high) { return {low, high, false, false, {}}; }
inline Rule at_least(double low) { return {low, std::numeric_limits<double>::infinity(), false, false, {}}; }
inline Rule above_to(double low, double high) { return {low, high, true, false, {}}; }
inline Rule from_below(double low, double high) { return {low, high, false, true, {}}; }
inline Rule one_of(std::vector<std::string_view> choices) {
  Rule rule;
  rule.choices = std::move(choices);
  return rule;
}

/// Adds the fields of one section, whose struct is recipe.*Section.
template <auto Section>
class SectionFields {
 public:
  SectionFields(std::vector<Field>& fields, std::string name) : fields_(fields), name_(std::move(name)) {}

  template <class Struct, class T>
  Field& add(const char* key, T Struct::*member, Rule rule, const char* meaning) {
    const Reference<T> reference = [member](Recipe& recipe) -> T& { return (recipe.*Section).*member; };
    return fields_.emplace_back(Field{name_ + "." + key, reference, std::move(rule), meaning});
  }

  /// Adds an enum with a table of names that may also be empty, which is written "auto".
  template <class Struct, class E, size_t N>
  Field& add(const char* key, std::optional<E> Struct::*member, const std::array<Named<E>, N>& table,
             const char* meaning) {
    const auto* rows = &table;
    const Choice choice = {.row =
                               [member, rows](const Recipe& recipe) {
                                 const std::optional<E>& value = (recipe.*Section).*member;
                                 return value ? row_of(*rows, *value) + 1 : 0;
                               },
                           .choose =
                               [member, rows](Recipe& recipe, size_t row) {
                                 std::optional<E>& value = (recipe.*Section).*member;
                                 value = row == 0 ? std::nullopt : std::optional(rows->at(row - 1).value);
                               }};
    std::vector<std::string_view> names = names_in(table);
    names.insert(names.begin(), name_or_auto(table, std::optional<E>()));
    return fields_.emplace_back(Field{name_ + "." + key, choice, one_of(std::move(names)), meaning});
  }

  /// Adds a member whose type is an enum with a table of names.
  template <class Struct, class E, size_t N>
  Field& add(const char* key, E Struct::*member, const std::array<Named<E>, N>& table, const char* meaning) {
    const auto* rows = &table;
    const Choice choice = {
        .row = [member, rows](const Recipe& recipe) { return row_of(*rows, (recipe.*Section).*member); },
        .choose = [member, rows](Recipe& recipe, size_t row) { (recipe.*Section).*member = rows->at(row).value; }};
    return fields_.emplace_back(Field{name_ + "." + key, choice, one_of(names_in(table)), meaning});
  }

 private:
  template <class E, size_t N>
  static size_t row_of(const std::array<Named<E>, N>& table, E value) {
    const auto is = [&](const Named<E>& row) { return row.value == value; };
    return static_cast<size_t>(std::find_if(table.begin(), table.end(), is) - table.begin());
  }

  std::vector<Field>& fields_;
  std::string name_;
};

/// Adds the keys of `data`.
void add_data(std::vector<Field>& fields);

/// Returns all keys, in the order in which a recipe is written.
const std::vector<Field>& schema();

bool is_text(const Field& field);           ///< a word or a text, not a number, true or false, or a list
std::string type_name(const Field& field);  ///< "integer", "list of numbers"
std::string allowed(const Field& field);    ///< "sgd, adamw", "0 .. 1", "> 0"

/// Returns the attributes that a node of model.graph may have.
const std::vector<std::string_view>& graph_attributes();

/// Checks `node` and stores it where `field` lives in `recipe`. Throws Error(usage) "name:line:column: key: what;
/// allowed: ...".
void assign(const Field& field, const YamlNode& node, const std::string& name, Recipe& recipe);

/// Returns the value as recipe text, on one line except for graphs and layers. Numbers are the shortest text that reads
/// back as the same.
std::string value_text(const Field& field, const Recipe& recipe);

// Parts of messages.
std::string shown(const std::string& text);                                     ///< quoted, cut when long
std::string with_allowed(const std::string& what, const std::string& choices);  ///< "what; allowed: choices"
/// Returns "; did you mean 'activation'?", or "" when nothing is near.
std::string suggestion(const std::string& word, const std::vector<std::string_view>& candidates);

/// Where each key was set, "recipe.yaml:12:5". Keys with their default value are absent.
using Places = std::map<std::string, std::string>;

/// The keys that the user set for this very command. A file that octet wrote has every key, and tells nothing about
/// what the user wanted: `file` is then empty.
struct GivenKeys {
  std::set<std::string> file;       ///< in the recipe
  std::set<std::string> overrides;  ///< by --set
};

/// Replaces an empty data.path, channels and image_size 0, and empty mean and std by what is usual for data.format; and
/// validation_fraction, unless it was set, by 0 where data.validation is named.
void resolve_defaults(Recipe& recipe, const Places& places);

/// A resolved recipe whose values must fit each other, and what messages need. `name` stands for the place of keys that
/// were not set.
struct Checks {
  const Recipe& recipe;
  const Places& places;
  const std::string& name;
  const GivenKeys& given;
  /// Throws Error(usage) "PLACE: key: what" unless the condition holds.
  void require(bool condition, const std::string& key, const std::string& what) const;
};

/// Refuses splits of data that name the same images: nothing may be chosen on training or test images, and only PTQ may
/// test on training images.
void check_different_images(const Checks& checks);

/// Returns what is wrong with the names of classes, or "" if each class has a name of its own.
std::string names_fault(const std::vector<std::string>& names);

/// Checks all sections but `data`.
void check_training(const Checks& checks);

/// Refuses a key that the user set, to another value than its default, where it means nothing beside another key. What
/// --set switches off, as calibrate.rounding=nearest does, may keep its keys in the file.
void check_unused(const Checks& checks);

/// Checks that the values of a resolved recipe fit each other. Throws Error(usage) naming the place (or `name`), both
/// keys and both values.
void check_consistency(const Recipe& recipe, const Places& places, const std::string& name, const GivenKeys& given);

}  // namespace octet
