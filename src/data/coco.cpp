// SPDX-License-Identifier: Apache-2.0
#include "src/data/box_annotations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/json.h"

namespace octet {
namespace {

using nlohmann::json;

/// One entry of a list of the file, for messages: "a.json: annotations[3]".
struct Entry {
  const json& value;
  std::string where;

  const json& at(const char* key) const {
    if (!value.is_object() || !value.contains(key)) throw data_error(fmt::format("{}: '{}' is missing", where, key));
    return value[key];
  }
  int64_t id(const char* key) const {
    const json& number = at(key);
    if (!number.is_number_integer()) throw data_error(fmt::format("{}: '{}' is no whole number", where, key));
    return number.get<int64_t>();
  }
  std::string text(const char* key) const {
    const json& text = at(key);
    if (!text.is_string()) throw data_error(fmt::format("{}: '{}' is no text", where, key));
    return text.get<std::string>();
  }
  double number(const char* key, double missing) const {
    if (!value.contains(key)) return missing;
    if (!value[key].is_number()) throw data_error(fmt::format("{}: '{}' is no number", where, key));
    return value[key].get<double>();
  }
};

/// Calls take(entry) for each entry of a list of the document.
template <class Take>
void for_entries(const json& document, const char* list, const std::string& path, const Take& take) {
  if (!document.is_object() || !document.contains(list) || !document[list].is_array())
    throw data_error(
        fmt::format("{}: no list '{}': COCO's annotations of boxes have images, categories, annotations", path, list));
  for (size_t i = 0; i < document[list].size(); ++i)
    take(Entry{document[list][i], fmt::format("{}: {}[{}]", path, list, i)});
}

/// Returns the place of each id in a list that is sorted by id. Throws for an id that two entries have.
template <class T>
std::map<int64_t, size_t> sort_by_id(std::vector<T>& list, const char* what, const std::string& path) {
  std::stable_sort(list.begin(), list.end(), [](const T& a, const T& b) { return a.id < b.id; });
  std::map<int64_t, size_t> places;
  for (size_t i = 0; i < list.size(); ++i)
    if (!places.emplace(list[i].id, i).second)
      throw data_error(fmt::format("{}: two {} have the id {}", path, what, list[i].id));
  return places;
}

Box read_box(const Entry& entry) {
  const json& box = entry.at("bbox");
  double values[4];
  bool good = box.is_array() && box.size() == 4;
  for (size_t i = 0; good && i < 4; ++i) {
    good = box[i].is_number() && std::isfinite(box[i].get<double>());
    if (good) values[i] = box[i].get<double>();
  }
  if (!good || values[2] < 0 || values[3] < 0)
    throw data_error(fmt::format("{}: bbox {} is not [x, y, width, height] with sizes of 0 or more", entry.where,
                                 box.dump(-1, ' ', false, json::error_handler_t::replace)));
  return {values[0], values[1], values[2], values[3]};
}

}  // namespace

BoxAnnotations read_coco(const std::string& path) { return parse_coco(read_file(path), path); }

BoxAnnotations parse_coco(const std::string& text, const std::string& path, bool leave_out) {
  const json document = parse_json(text, path);
  BoxAnnotations result;
  for_entries(document, "categories", path, [&](const Entry& entry) {
    result.categories.push_back({entry.id("id"), entry.text("name")});
  });
  for_entries(document, "images", path, [&](const Entry& entry) {
    const double height = entry.number("height", 0), width = entry.number("width", 0);
    const ImageSize size = annotated_size(height, width, entry.where);
    result.images.push_back({entry.id("id"), entry.text("file_name"), size, {}});
  });
  const std::map<int64_t, size_t> categories = sort_by_id(result.categories, "categories", path);
  const std::map<int64_t, size_t> images = sort_by_id(result.images, "images", path);
  BoxFaults faults(leave_out);
  for_entries(document, "annotations", path, [&](const Entry& entry) {
    const auto category = categories.find(entry.id("category_id"));
    if (category == categories.end())
      return faults.leave_out("box", entry.where,
                              fmt::format("category_id {} is none of 'categories'", entry.id("category_id")));
    const auto image = images.find(entry.id("image_id"));
    if (image == images.end())
      throw data_error(fmt::format("{}: image_id {} is none of 'images'", entry.where, entry.id("image_id")));
    const Box box = read_box(entry);
    const double crowd = entry.number("iscrowd", 0);
    if (crowd != 0 && crowd != 1) throw data_error(fmt::format("{}: iscrowd {} is not 0 or 1", entry.where, crowd));
    BoxAnnotations::AnnotatedImage& annotated = result.images[image->second];
    faults.look_at(box, annotated.size, entry.where);
    annotated.labels.push_back({box, static_cast<int>(category->second), entry.number("area", box.area()), crowd == 1});
  });
  faults.tell(result.notes);
  return result;
}

}  // namespace octet
