// Strict JSON for files that are not trusted. Errors are Error(data) and name the file and the place.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

/// Parses one document; refuses syntax errors, nesting deeper than 16 and objects with a key twice. `where`: for
/// messages, "resnet.safetensors: header".
nlohmann::json parse_json(std::string_view text, const std::string& where);

/// `json` on one line. Throws Error(data) for strings that are not UTF-8.
std::string write_json(const nlohmann::json& json, const std::string& where);

/// `json` with every NaN and infinity in it as "NaN", "Infinity" or "-Infinity", as protobuf's JSON has them: JSON has
/// no such numbers, and nlohmann would write null for all three.
nlohmann::json spell_numbers(nlohmann::json json);

/// The numbers again. null becomes NaN: octet wrote it once, where a number is not known it still does.
nlohmann::json read_numbers(nlohmann::json json);

/// One object whose keys are taken one by one; done() refuses the keys nobody took.
class JsonObject {
 public:
  /// Throws if `json` is not an object; keeps a reference to it.
  JsonObject(const nlohmann::json& json, std::string where);

  bool has(const std::string& key) const { return json_.contains(key); }
  const nlohmann::json& take(const std::string& key);  ///< throws if it is missing
  std::string string(const std::string& key);
  bool boolean(const std::string& key);
  double number(const std::string& key);
  float float32(const std::string& key);                            ///< a number that is exactly a float32
  int integer(const std::string& key);                              ///< fits int32
  std::vector<int> integers(const std::string& key);                ///< any count
  std::vector<int> integers(const std::string& key, size_t count);  ///< exactly that many
  std::vector<float> float32s(const std::string& key);              ///< any count
  std::vector<std::string> strings(const std::string& key);         ///< any count
  const nlohmann::json& array(const std::string& key);
  JsonObject object(const std::string& key);
  const std::string& where() const { return where_; }
  void done() const;

 private:
  std::string place(const std::string& key) const { return where_ + "." + key; }

  const nlohmann::json& json_;
  std::string where_;
  std::set<std::string> taken_;
};

}  // namespace octet
