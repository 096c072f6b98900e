// SPDX-License-Identifier: Apache-2.0
#include "src/recipe/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/recipe/schema.h"

namespace octet {
namespace {

constexpr size_t kLargestRecipe = size_t{1} << 20;
constexpr size_t kLongestKeyShown = 80;

/// Returns "qat" for "qat.epochs", "" for "seed".
std::string_view section_of(std::string_view key) {
  const size_t dot = key.find('.');
  return dot == std::string_view::npos ? "" : key.substr(0, dot);
}

/// Returns the names of the keys in `section`; for "" those of all sections and of the keys outside them.
std::vector<std::string_view> names_in(std::string_view section) {
  std::vector<std::string_view> names;
  for (const Field& field : schema()) {
    const std::string_view key = field.key, owner = section_of(key);
    std::string_view name = key;
    if (section.empty() && !owner.empty()) name = owner;
    if (!section.empty()) name = owner == section ? key.substr(section.size() + 1) : "";
    if (!name.empty() && (names.empty() || names.back() != name)) names.push_back(name);
  }
  return names;
}

/// A key of older octets, and the value that said that it was not used.
struct RemovedKey {
  std::string_view key, unused;
};
constexpr RemovedKey kRemovedKeys[] = {{"qat.pact_decay", "0.0002"},
                                       {"qat.freeze_oscillating", "0"},
                                       {"qat.freeze_oscillating_start", "0"},
                                       {"qat.reestimate_batch_norm", "0"}};

bool is_unused_removed_key(std::string_view key, const YamlNode& value) {
  return std::any_of(std::begin(kRemovedKeys), std::end(kRemovedKeys), [&](const RemovedKey& removed) {
    return removed.key == key && value.kind == YamlNode::Kind::scalar && value.text == removed.unused;
  });
}

const Field* find_field(std::string_view key) {
  for (const Field& field : schema()) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

[[noreturn]] void unknown_key(const std::string& where, const std::string& section, const std::string& word) {
  const auto names = names_in(section);
  const std::string key = section.empty() ? word : fmt::format("{}.{}", section, word);
  const std::string what =
      with_allowed("unknown key" + suggestion(word, names), fmt::format("{}", fmt::join(names, ", ")));
  throw usage_error(fmt::format("{}: {}: {}", where, key.substr(0, kLongestKeyShown), what));
}

/// Fills a recipe from a document and overrides, and remembers where each key was set.
class RecipeParser {
 public:
  explicit RecipeParser(const std::string& name) : name_(name) {}

  void read_document(const YamlNode& root) {
    if (root.kind == YamlNode::Kind::null) return;
    if (root.kind != YamlNode::Kind::map) throw usage_error(place(name_, root) + ": a recipe is a map of sections");
    read_section(root, "");
  }

  /// Reads an override such as "quant.activation=affine_u8". Text values are taken as they are, others are YAML.
  void read_override(const std::string& override_text) {
    const std::string source = "--set " + shown(override_text);
    const size_t equals = override_text.find('=');
    if (equals == std::string::npos) throw usage_error(source + ": needs the form key.path=value");
    const std::string key = override_text.substr(0, equals), text = override_text.substr(equals + 1);
    const Field* field = find_field(key);
    if (field == nullptr) {
      const std::string section(section_of(key));
      const auto sections = names_in("");
      const bool known = !section.empty() && std::find(sections.begin(), sections.end(), section) != sections.end();
      unknown_key(source, known ? section : "",
                  known             ? key.substr(section.size() + 1)
                  : section.empty() ? key
                                    : section);
    }
    YamlNode node;
    if (is_text(*field)) {
      node.kind = YamlNode::Kind::scalar;
      node.text = text;
    } else {
      node = parse_yaml(text, source);
    }
    assign(*field, node, source, recipe_);
    places_[field->key] = source;
    given_.overrides.insert(field->key);
  }

  /// For a recipe that an earlier octet wrote with every key it knew: a missing key keeps the meaning of that time.
  void keep_earlier_meanings() {
    places_.emplace("data.orientation", name_);  // the struct's default, not the format's
    given_.file.clear();
    removed_key_ = {};
  }

  Recipe finish() {
    for (const Field& field : schema()) {
      if (field.required && places_.count(field.key) == 0) {
        throw usage_error(name_ + ": " + field.key + ": missing; allowed: " + allowed(field));
      }
    }
    resolve_defaults(recipe_, places_);
    if (given_.file.size() == schema().size()) {  // write_recipe() wrote it
      given_.file.clear();
    } else if (!removed_key_.word.empty()) {
      unknown_key(removed_key_.where, removed_key_.section, removed_key_.word);
    }
    check_consistency(recipe_, places_, name_, given_);
    return recipe_;
  }

 private:
  void read_section(const YamlNode& map, const std::string& section) {
    std::set<std::string> seen;
    const auto names = names_in(section);
    for (size_t i = 0; i < map.keys.size(); ++i) {
      const YamlNode& key = map.keys[i];
      const std::string where = place(name_, key);
      const std::string path = section.empty() ? key.text : section + "." + key.text;
      const bool known = std::find(names.begin(), names.end(), key.text) != names.end();
      if (!known && !is_unused_removed_key(path, map.items[i])) unknown_key(where, section, key.text);
      if (!seen.insert(key.text).second) throw usage_error(where + ": " + path + ": given twice; remove one");
      if (known) {
        read_entry(path, map.items[i], where);
      } else if (removed_key_.word.empty()) {
        removed_key_ = {where, section, key.text};
      }
    }
  }

  void read_entry(const std::string& path, const YamlNode& value, const std::string& where) {
    if (const Field* field = find_field(path)) {
      assign(*field, value, name_, recipe_);
      places_[path] = where;
      given_.file.insert(path);
    } else if (value.kind == YamlNode::Kind::map) {
      read_section(value, path);
    } else {
      throw usage_error(where + ": " + path + ": is a section; its keys follow, indented");
    }
  }

  /// The first key of kRemovedKeys: refused, unless octet wrote the file.
  struct Removed {
    std::string where, section, word;
  };

  const std::string& name_;
  Recipe recipe_;
  Places places_;
  GivenKeys given_;
  Removed removed_key_;
};

Recipe parse(const std::string& text, const std::string& name, const std::vector<std::string>& overrides, bool of_run) {
  if (text.size() > kLargestRecipe) throw usage_error(name + ": larger than 1 MiB: not a recipe");
  RecipeParser parser(name);
  parser.read_document(parse_yaml(without_byte_order_mark(text), name));
  if (of_run) parser.keep_earlier_meanings();
  for (const std::string& text_of_override : overrides) parser.read_override(text_of_override);
  return parser.finish();
}

std::string read_text(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (!error && size > kLargestRecipe) throw usage_error(path + ": larger than 1 MiB: not a recipe");
  return read_file(path);
}

}  // namespace

Recipe read_recipe(const std::string& path, const std::vector<std::string>& overrides) {
  return parse(read_text(path), path, overrides, /*of_run=*/false);
}

Recipe read_run_recipe(const std::string& path, const std::vector<std::string>& overrides) {
  return parse(read_text(path), path, overrides, /*of_run=*/true);
}

Recipe parse_recipe(const std::string& text, const std::string& name, const std::vector<std::string>& overrides) {
  return parse(text, name, overrides, /*of_run=*/false);
}

std::string write_recipe(const Recipe& recipe) {
  std::string text, section;
  for (const Field& field : schema()) {
    const std::string owner(section_of(field.key));
    if (owner != section) text += "\n" + owner + ":\n";
    section = owner;
    const std::string key = owner.empty() ? field.key : "  " + field.key.substr(owner.size() + 1);
    const std::string value = value_text(field, recipe);
    text += key + ":" + (value.front() == '\n' ? "" : " ") + value + "\n";
  }
  return text;
}

int QuantRecipe::least_activation_bits() const {
  int bits = std::min({activation_bits, input_bits, last_layer_bits});
  if (residual_bits > 0) bits = std::min(bits, residual_bits);
  for (const LayerBits& layer : layers)
    if (layer.activation_bits > 0) bits = std::min(bits, layer.activation_bits);
  return bits;
}

Recipe training_part(Recipe recipe) {
  recipe.evaluate = {};
  recipe.train.val_interval = recipe.qat.val_interval = OptimizerRecipe().val_interval;
  return recipe;
}

std::string recipe_hash(const Recipe& recipe) { return sha256(write_recipe(recipe)); }

std::string hash_of_changes(const Recipe& recipe) {
  Recipe usual;
  usual.train.learning_rate = 0.1;  // the defaults of octets whose states this one resumes
  usual.calibrate.method = CalibrationMethod::mse;
  usual.quant.scales = EdgeScales::fixed;
  usual.qat.freeze_batch_norm = kUsualFreeze;
  std::string given;
  for (const Field& field : schema()) {
    const std::string value = value_text(field, recipe);
    if (value != value_text(field, usual)) given += field.key + ": " + value + "\n";
  }
  return sha256(given);
}

std::string partial_engine(const std::vector<std::string>& engines) {
  const auto found = std::find_if(engines.begin(), engines.end(),
                                  [](const std::string& name) { return name == "cudnn" || name == "cutlass"; });
  return found == engines.end() ? "" : *found;
}

FallbackFault fallback_fault(const std::vector<std::string>& engines, const std::string& fallback) {
  const bool partial = !partial_engine(engines).empty();
  if (partial == (fallback != "none")) return FallbackFault::none;
  return partial ? FallbackFault::missing : FallbackFault::useless;
}

}  // namespace octet
