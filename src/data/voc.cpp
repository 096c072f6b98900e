// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <pugixml.hpp>
#include <sstream>

#include "src/base/error.h"
#include "src/data/box_annotations.h"

namespace octet {
namespace {

/// A file of annotations, for its elements and where they stand.
class VocFile {
 public:
  VocFile(std::string text, std::string name) : text_(std::move(text)), name_(std::move(name)) {
    const pugi::xml_parse_result parsed = document_.load_buffer(text_.data(), text_.size());
    if (!parsed) throw data_error(fmt::format("{}: {}", place(parsed.offset), parsed.description()));
    root_ = document_.child("annotation");
    if (!root_)
      throw data_error(name_ + ": no element <annotation>: Pascal VOC's annotations have size and object in it");
  }

  pugi::xml_node root() const { return root_; }
  std::string place(const pugi::xml_node& node) const { return place(node.offset_debug()); }

  /// Returns an element within `node`, which must be there.
  pugi::xml_node child(const pugi::xml_node& node, const char* key) const {
    const pugi::xml_node found = node.child(key);
    if (!found) throw data_error(fmt::format("{}: <{}> has no <{}>", place(node), node.name(), key));
    return found;
  }

  /// Returns the one word or more in an element, without the spaces around them.
  std::string text(const pugi::xml_node& node, const char* key) const {
    const pugi::xml_node found = child(node, key);
    const std::string text = found.child_value();
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string::npos) throw data_error(fmt::format("{}: <{}> is empty", place(found), key));
    return text.substr(first, text.find_last_not_of(" \t\r\n") + 1 - first);
  }

  double number(const pugi::xml_node& node, const char* key) const {
    const pugi::xml_node found = child(node, key);
    std::istringstream text(found.child_value());
    double value = 0;
    if (!(text >> value) || !(text >> std::ws).eof() || !std::isfinite(value))
      throw data_error(fmt::format("{}: <{}> '{}' is no number", place(found), key, found.child_value()));
    return value;
  }

 private:
  std::string place(std::ptrdiff_t offset) const {
    const auto end = text_.begin() + std::clamp<std::ptrdiff_t>(offset, 0, std::ssize(text_));
    return fmt::format("{}:{}", name_, 1 + std::count(text_.begin(), end, '\n'));
  }

  const std::string text_, name_;
  pugi::xml_document document_;
  pugi::xml_node root_;
};

/// Returns the box of an object. Its corners are pixels, counted from 1, that belong to it (VOC2012's devkit, section
/// 4.2).
Box voc_box(const VocFile& file, const pugi::xml_node& object) {
  const pugi::xml_node box = file.child(object, "bndbox");
  const double left = file.number(box, "xmin") - 1, top = file.number(box, "ymin") - 1;
  const double right = file.number(box, "xmax"), bottom = file.number(box, "ymax");
  if (right < left || bottom < top) throw data_error(file.place(box) + ": a box of negative size");
  return {left, top, right - left, bottom - top};
}

/// Sorts the classes, and gives the labels their new places.
void sort_classes(std::vector<std::string>& classes, BoxAnnotations& annotations) {
  const std::vector<std::string> met = classes;
  std::sort(classes.begin(), classes.end());
  for (BoxAnnotations::AnnotatedImage& image : annotations.images)
    for (BoxLabel& label : image.labels) {
      const std::string& name = met[static_cast<size_t>(label.class_index)];
      label.class_index = static_cast<int>(std::lower_bound(classes.begin(), classes.end(), name) - classes.begin());
    }
}

ImageSize voc_size(const VocFile& file) {
  const pugi::xml_node size = file.root().child("size");
  if (!size) return {};
  const double height = file.number(size, "height"), width = file.number(size, "width");
  return annotated_size(height, width, file.place(size));
}

}  // namespace

std::vector<std::string> read_voc_list(const StoredFile& list) {
  std::istringstream lines(list.read());
  std::vector<std::string> names;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    std::string name, more;
    if (!(words >> name)) continue;
    if (words >> more)
      throw data_error(
          fmt::format("{}:{}: '{}' behind a name: lists of one class (aeroplane_train.txt) say of which "
                      "images it is in; take the list of all (train.txt)",
                      list.name, number, more));
    names.push_back(name);
  }
  return names;
}

BoxAnnotations read_voc(const FileTree& tree, const std::string& folder, const std::vector<std::string>& names,
                        const std::vector<std::string>& class_names, bool leave_out) {
  BoxAnnotations result;
  std::vector<std::string> classes = class_names;  // in the order in which they are met, where none are given
  BoxFaults faults(leave_out);
  for (const std::string& name : names) {
    const StoredFile stored = tree.file(folder + "/" + name + ".xml");
    const VocFile file(stored.read(), stored.name);
    BoxAnnotations::AnnotatedImage image{std::ssize(result.images), name, voc_size(file), {}};
    for (const pugi::xml_node& object : file.root().children("object")) {
      const std::string where = file.place(object), of = file.text(object, "name");
      const Box box = voc_box(file, object);
      auto found = std::find(classes.begin(), classes.end(), of);
      if (found == classes.end() && class_names.empty()) found = classes.insert(found, of);
      if (found == classes.end()) {
        faults.leave_out("box", where,
                         fmt::format("of class '{}', which is none of the {} classes ({} ...)", of, classes.size(),
                                     classes.front()));
        continue;
      }
      faults.look_at(box, image.size, where);
      const pugi::xml_node difficult = object.child("difficult");
      image.labels.push_back({box, static_cast<int>(found - classes.begin()), box.area(),
                              difficult && file.number(object, "difficult") != 0});
    }
    result.images.push_back(std::move(image));
  }
  if (class_names.empty()) sort_classes(classes, result);
  for (const std::string& name : classes) result.categories.push_back({std::ssize(result.categories), name});
  faults.tell(result.notes);
  return result;
}

}  // namespace octet
