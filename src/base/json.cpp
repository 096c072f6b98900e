// SPDX-License-Identifier: Apache-2.0
#include "src/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "src/base/error.h"

namespace octet {
namespace {

constexpr int kMaxDepth = 16;

/// Returns the deepest nesting of brackets outside strings, also of a text that is not JSON.
int nesting(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

int to_int(const nlohmann::json& value, const std::string& where) {
  const bool fits = value.is_number_integer() &&
                    (value.is_number_unsigned() ? value.get<uint64_t>() <= std::numeric_limits<int32_t>::max()
                                                : value.get<int64_t>() >= std::numeric_limits<int32_t>::min());
  if (!fits) throw data_error(fmt::format("{} is not a 32-bit integer", where));
  return value.get<int>();
}

float to_float32(const nlohmann::json& value, const std::string& where) {
  if (!value.is_number()) throw data_error(fmt::format("{} is not a number", where));
  const double exact = value.get<double>();
  if (!(std::abs(exact) <= std::numeric_limits<float>::max()) ||
      static_cast<double>(static_cast<float>(exact)) != exact) {
    throw data_error(fmt::format("{} = {} is not a float32", where, exact));
  }
  return static_cast<float>(exact);
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  if (nesting(text) > kMaxDepth) throw data_error(fmt::format("{}: JSON nested deeper than {}", where, kMaxDepth));
  std::vector<std::set<std::string>> keys(static_cast<size_t>(kMaxDepth) + 2);
  std::string twice;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    const auto level = static_cast<size_t>(depth);
    // An object at depth d announces its keys with depth d + 1.
    if (event == nlohmann::json::parse_event_t::object_start) keys.at(level + 1).clear();
    if (event == nlohmann::json::parse_event_t::key && !keys.at(level).insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  nlohmann::json json = nlohmann::json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw data_error(fmt::format("{}: not valid JSON", where));
  if (!twice.empty()) throw data_error(fmt::format("{}: key '{}' twice in one object", where, twice));
  return json;
}

std::string write_json(const nlohmann::json& json, const std::string& where) {
  try {
    return json.dump();
  } catch (const nlohmann::json::exception&) {
    throw data_error(fmt::format("{}: a name is not valid UTF-8", where));
  }
}

namespace {

constexpr std::array<std::pair<const char*, double>, 3> kSpelled = {{
    {"NaN", std::numeric_limits<double>::quiet_NaN()},
    {"Infinity", std::numeric_limits<double>::infinity()},
    {"-Infinity", -std::numeric_limits<double>::infinity()},
}};

/// Calls change() on every value that contains no other values.
template <typename Change>
void for_leaves(nlohmann::json& json, const Change& change) {
  if (!json.is_structured()) return change(json);
  for (nlohmann::json& inner : json) for_leaves(inner, change);
}

}  // namespace

nlohmann::json spell_numbers(nlohmann::json json) {
  for_leaves(json, [](nlohmann::json& value) {
    if (!value.is_number_float() || std::isfinite(value.get<double>())) return;
    const auto number = value.get<double>();
    value = std::isnan(number) ? kSpelled[0].first : number > 0 ? kSpelled[1].first : kSpelled[2].first;
  });
  return json;
}

nlohmann::json read_numbers(nlohmann::json json) {
  for_leaves(json, [](nlohmann::json& value) {
    if (value.is_null()) value = kSpelled[0].second;
    if (!value.is_string()) return;
    for (const auto& [word, number] : kSpelled) {
      if (value == word) {
        value = number;
        return;
      }
    }
  });
  return json;
}

JsonObject::JsonObject(const nlohmann::json& json, std::string where) : json_(json), where_(std::move(where)) {
  if (!json.is_object()) throw data_error(fmt::format("{} is not a JSON object", where_));
}

const nlohmann::json& JsonObject::take(const std::string& key) {
  const auto found = json_.find(key);
  if (found == json_.end()) throw data_error(fmt::format("{}: key '{}' is missing", where_, key));
  taken_.insert(key);
  return *found;
}

std::string JsonObject::string(const std::string& key) {
  const nlohmann::json& value = take(key);
  if (!value.is_string()) throw data_error(fmt::format("{} is not a string", place(key)));
  return value.get<std::string>();
}

bool JsonObject::boolean(const std::string& key) {
  const nlohmann::json& value = take(key);
  if (!value.is_boolean()) throw data_error(fmt::format("{} is not true or false", place(key)));
  return value.get<bool>();
}

double JsonObject::number(const std::string& key) {
  const nlohmann::json& value = take(key);
  if (!value.is_number()) throw data_error(fmt::format("{} is not a number", place(key)));
  return value.get<double>();
}

float JsonObject::float32(const std::string& key) { return to_float32(take(key), place(key)); }

int JsonObject::integer(const std::string& key) { return to_int(take(key), place(key)); }

const nlohmann::json& JsonObject::array(const std::string& key) {
  const nlohmann::json& value = take(key);
  if (!value.is_array()) throw data_error(fmt::format("{} is not an array", place(key)));
  return value;
}

std::vector<int> JsonObject::integers(const std::string& key) {
  std::vector<int> values;
  for (const nlohmann::json& element : array(key)) values.push_back(to_int(element, place(key)));
  return values;
}

std::vector<int> JsonObject::integers(const std::string& key, size_t count) {
  std::vector<int> values = integers(key);
  if (values.size() != count)
    throw data_error(fmt::format("{} has {} numbers, needs {}", place(key), values.size(), count));
  return values;
}

std::vector<float> JsonObject::float32s(const std::string& key) {
  std::vector<float> values;
  for (const nlohmann::json& element : array(key)) values.push_back(to_float32(element, place(key)));
  return values;
}

std::vector<std::string> JsonObject::strings(const std::string& key) {
  std::vector<std::string> values;
  for (const nlohmann::json& element : array(key)) {
    if (!element.is_string()) throw data_error(fmt::format("{} holds something that is no string", place(key)));
    values.push_back(element.get<std::string>());
  }
  return values;
}

JsonObject JsonObject::object(const std::string& key) { return JsonObject(take(key), place(key)); }

void JsonObject::done() const {
  for (const auto& [key, value] : json_.items()) {
    if (!taken_.contains(key)) throw data_error(fmt::format("{}: unknown key '{}'", where_, key));
  }
}

}  // namespace octet
