// SPDX-License-Identifier: Apache-2.0
// Strict JSON for untrusted files. Errors are Error(data) and name the file and the place in it.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

/// Parses one document. Refuses syntax errors, nesting deeper than 16 and objects with the same key twice. `where` is
/// for messages: "resnet.safetensors: header".
nlohmann::json parse_json(std::string_view text, const std::string& where);

/// Returns the JSON on one line. Throws Error(data) for strings that are not UTF-8.
std::string write_json(const nlohmann::json& json, const std::string& where);

/// Replaces each NaN and infinity by the string "NaN", "Infinity" or "-Infinity", as protobuf's JSON does. JSON has no
/// such numbers, and nlohmann would write null for all three.
nlohmann::json spell_numbers(nlohmann::json json);

/// Undoes spell_numbers(). null becomes NaN too: older versions wrote it for NaN, and it still stands for an unknown
/// number.
nlohmann::json read_numbers(nlohmann::json json);

/// Reads an object key by key: each function takes one key, and done() refuses the keys that were not taken. A missing
/// key or one of another type throws.
class JsonObject {
 public:
  /// Keeps a reference to `json`, which must be an object.
  JsonObject(const nlohmann::json& json, std::string where);

  bool has(const std::string& key) const { return json_.contains(key); }
  const nlohmann::json& take(const std::string& key);  ///< any type
  std::string string(const std::string& key);
  bool boolean(const std::string& key);
  double number(const std::string& key);
  float float32(const std::string& key);                            ///< must be exactly a float32
  int integer(const std::string& key);                              ///< must fit int32
  std::vector<int> integers(const std::string& key);                ///< any count
  std::vector<int> integers(const std::string& key, size_t count);  ///< exactly that many
  std::vector<float> float32s(const std::string& key);              ///< any count
  std::vector<std::string> strings(const std::string& key);         ///< any count
  const nlohmann::json& array(const std::string& key);
  JsonObject object(const std::string& key);
  const std::string& where() const { return where_; }
  void done() const;  ///< throws if there is a key that was not taken

 private:
  std::string place(const std::string& key) const { return where_ + "." + key; }

  const nlohmann::json& json_;
  std::string where_;
  std::set<std::string> taken_;
};

}  // namespace octet
