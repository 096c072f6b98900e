// SPDX-License-Identifier: Apache-2.0
// What the table of keys is written with: rules for values, and fields that stand for members of a section's struct.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/names.h"
#include "src/recipe/recipe.h"
#include "src/recipe/schema.h"

namespace octet {

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

}  // namespace octet
