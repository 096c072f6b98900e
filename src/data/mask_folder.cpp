// SPDX-License-Identifier: Apache-2.0
#include "src/data/mask_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <filesystem>
#include <map>
#include <sstream>
#include <system_error>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/data/decoders.h"
#include "src/data/image_files.h"
#include "src/data/image_folder.h"

namespace octet {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostClasses = kUnlabelled;  // a pixel of a mask is a byte

/// Returns the number 0 .. 255 that `word` is, or -1.
int sample_of(const std::string& word) {
  int value = -1;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool good = error == std::errc() && end == word.data() + word.size() && value >= 0 && value <= 255;
  return good ? value : -1;
}

/// A line of a table of classes.
struct Line {
  std::string name;
  int colour = -1;  ///< 0xRRGGBB; -1: the line has none
};

Line parse_line(std::string text) {
  const std::string whole = text;
  for (char& c : text)
    if (c == ',') c = ' ';
  std::istringstream words(text);
  std::vector<std::string> all;
  for (std::string word; words >> word;) all.push_back(word);
  const auto colour = [&](size_t first) {
    int value = 0;
    for (size_t i = first; i < first + 3; ++i)
      value = value < 0 || sample_of(all[i]) < 0 ? -1 : value << 8 | sample_of(all[i]);
    return value;
  };
  for (const bool behind : {true, false}) {
    if (all.size() < 4) break;
    const int found = colour(behind ? all.size() - 3 : 0);
    if (found < 0) continue;
    const auto begin = all.begin() + (behind ? 0 : 3), end = all.end() - (behind ? 3 : 0);
    return {fmt::format("{}", fmt::join(begin, end, " ")), found};
  }
  return {whole, -1};
}

/// Folders of images and of masks, and Pascal VOC's list of names or "".
struct Layout {
  std::string images, masks, list = "";
};

/// Returns the first of the layouts that is there.
Layout find_layout(const FileTree& tree, const DatasetSpec& spec) {
  const std::string& split = spec.split;
  const std::vector<Layout> layouts = {{"images/" + split, "masks/" + split},
                                       {"images/" + split, "annotations/" + split},
                                       {split + "/images", split + "/masks"},
                                       {split, split + "annot"},
                                       {split, split + "_labels"},
                                       {split, split + "_masks"},
                                       {"JPEGImages", "SegmentationClass", "ImageSets/Segmentation/" + split + ".txt"}};
  std::vector<std::string> tried;
  for (const Layout& layout : layouts) {
    const auto& [images, masks, list] = layout;
    const bool listed = list.empty() || tree.is_file(list);
    if (!split.empty() && listed && tree.is_folder(images) && tree.is_folder(masks)) return layout;
    tried.push_back(fmt::format("{} with {}{}", tree.describe(images), tree.describe(masks),
                                list.empty() ? "" : " and " + tree.describe(list)));
  }
  throw data_error(
      fmt::format("{}: no folder of images beside one of masks for '{}'; looked for {}; see data.path, data.train, "
                  "data.validation, data.test",
                  spec.path, split, fmt::join(tried, ", ")));
}

/// Returns the images that Pascal VOC's list names.
std::vector<StoredFile> listed_images(const FileTree& tree, const std::string& list, const std::string& folder) {
  std::vector<StoredFile> files;
  const StoredFile stored = tree.file(list);
  for (const std::string& name : parse_classes(stored.read(), stored.name)) {
    const std::string file = (fs::path(folder) / (name + ".jpg")).string();
    if (!tree.is_file(file)) throw data_error(fmt::format("{}: {} is not there", stored.name, tree.describe(file)));
    files.push_back(tree.file(file));
  }
  return files;
}

/// Returns the mask's file for an image `name` below its folder.
std::optional<StoredFile> mask_file(const FileTree& tree, const fs::path& masks, const fs::path& name) {
  for (const char* ending : {".png", "_mask.png", "_L.png"}) {
    const std::string file = (masks / name.parent_path() / (name.stem().string() + ending)).string();
    if (tree.is_file(file)) return tree.file(file);
  }
  return std::nullopt;
}

/// The classes of masks, and how their pixels say them.
struct MaskClasses {
  std::vector<std::string> names;
  std::map<uint32_t, uint8_t> colours;  ///< 0xRRGGBB to class or kUnlabelled; empty: pixels are numbers of classes
};

/// Reads the file of spec.classes, see open_mask_folder().
MaskClasses read_mask_classes(const std::string& path) {
  MaskClasses classes;
  std::istringstream lines(without_byte_order_mark(read_file(path)));
  std::vector<std::pair<int, Line>> all;
  int number = 0;
  for (std::string text; std::getline(lines, text);) {
    ++number;
    text.erase(text.find_last_not_of(" \t\r") + 1);
    if (!text.empty()) all.emplace_back(number, parse_line(text));
  }
  const bool coloured = std::any_of(all.begin(), all.end(), [](const auto& line) { return line.second.colour >= 0; });
  for (const auto& [at, line] : all) {
    const auto fail = [&, at = at](const std::string& what) {
      return data_error(fmt::format("{}:{}: {}", path, at, what));
    };
    if (coloured && line.colour < 0) {
      if (at == all.front().first && line.name.find(',') != std::string::npos) continue;  // the head of a CSV file
      throw fail(fmt::format("'{}' has no colour, and other classes have one: NAME R G B", line.name));
    }
    const auto found = std::find(classes.names.begin(), classes.names.end(), line.name);
    const bool known = found != classes.names.end();
    if (known && !coloured) throw fail(fmt::format("class {} is listed twice", line.name));
    const bool none = coloured && line.name == "-";
    const auto index = none ? size_t{kUnlabelled} : static_cast<size_t>(found - classes.names.begin());
    if (!none && !known) classes.names.push_back(line.name);
    if (!none && index >= kMostClasses) throw fail(fmt::format("more than {} classes", kMostClasses));
    if (coloured && !classes.colours.emplace(line.colour, static_cast<uint8_t>(index)).second)
      throw fail(fmt::format("the colour of '{}' is another line's, too", line.name));
  }
  if (classes.names.empty()) throw data_error(path + ": names no class");
  return classes;
}

class MaskFolder : public ImageList {
 public:
  explicit MaskFolder(const DatasetSpec& spec);
  Labels labels() const override { return Labels::pixels; }
  int label(size_t index) const override;
  Image mask(size_t index) const override;
  std::optional<ImageHeader> header(size_t index) const override;

 private:
  Image classes_of_colours(const Image& colours, const std::string& name) const;

  std::map<uint32_t, uint8_t> colours_;  ///< MaskClasses::colours
  std::string classes_from_;             ///< the file, or the key, for messages
  int ignore_index_;
  std::vector<StoredFile> masks_;  ///< by image
};

MaskFolder::MaskFolder(const DatasetSpec& spec)
    : ImageList(spec),
      classes_from_(spec.classes.empty() ? "data.class_names" : spec.classes),
      ignore_index_(spec.ignore_index) {
  if (spec.classes.empty() && spec.class_names.empty())
    throw data_error(spec.path +
                     ": masks hold numbers or colours, and nothing says of which classes: name them in "
                     "data.class_names, or a file in data.classes");
  MaskClasses classes = spec.classes.empty() ? MaskClasses{spec.class_names, {}} : read_mask_classes(spec.classes);
  class_names_ = std::move(classes.names);
  colours_ = std::move(classes.colours);
  if (class_names_.size() > kMostClasses)
    throw data_error(
        fmt::format("{}: names {} classes, more than {}", classes_from_, class_names_.size(), kMostClasses));
  if (!colours_.empty() && ignore_index_ != kUnlabelled)
    throw usage_error(fmt::format(
        "data.ignore_index: means nothing with the colours of {}; leave it out, a line '- R G B' there names the "
        "colour of pixels without class",
        classes_from_));
  const FileTree tree(spec.path);
  const Layout layout = find_layout(tree, spec);
  const std::string images = tree.describe(layout.images), masks = tree.describe(layout.masks);
  LeftOut left_out;
  files_ = layout.list.empty() ? tree.images(layout.images, left_out) : listed_images(tree, layout.list, layout.images);
  if (files_.empty()) throw data_error(fmt::format("{}: no image (JPEG, PNG, BMP, WebP){}", images, left_out.text()));
  notes_ = left_out.notes(images);
  std::string first;
  long missing = 0;
  for (const StoredFile& file : files_) {
    const fs::path name = fs::path(file.name).lexically_relative(images);
    const std::optional<StoredFile> mask = mask_file(tree, layout.masks, name);
    masks_.push_back(mask.value_or(StoredFile{}));
    if (!mask && missing++ == 0) first = (fs::path(masks) / name).replace_extension(".png").string();
  }
  if (missing > 0)
    throw data_error(fmt::format("{}: {} of its {} images have no mask in {}, the first: {}", images, missing,
                                 masks_.size(), masks, first));
}

int MaskFolder::label(size_t index) const {
  throw usage_error(describe(index) + ": its pixels have classes, the image has none");
}

Image MaskFolder::classes_of_colours(const Image& colours, const std::string& name) const {
  Image mask{colours.height, colours.width, 1, {}};
  mask.pixels.reserve(colours.pixels.size() / 3);
  auto found = colours_.begin();
  for (size_t i = 0; i < colours.pixels.size(); i += 3) {
    const uint8_t* rgb = &colours.pixels[i];
    const uint32_t colour = uint32_t{rgb[0]} << 16 | uint32_t{rgb[1]} << 8 | rgb[2];
    if (found->first != colour) found = colours_.find(colour);
    if (found == colours_.end()) {
      const size_t pixel = i / 3, width = static_cast<size_t>(colours.width);
      throw data_error(fmt::format(
          "{}: colour {} {} {} at ({}, {}) is no class of {}; a line '- {} {} {}' there says "
          "that such pixels have none",
          name, rgb[0], rgb[1], rgb[2], pixel % width, pixel / width, classes_from_, rgb[0], rgb[1], rgb[2]));
    }
    mask.pixels.push_back(found->second);
  }
  return mask;
}

Image MaskFolder::mask(size_t index) const {
  const std::string& name = masks_.at(index).name;
  const std::string bytes = masks_.at(index).read();
  if (!colours_.empty()) return classes_of_colours(decode_image(bytes, 3, name), name);
  Image mask = decode_numbers(bytes, name);
  for (size_t i = 0; i < mask.pixels.size(); ++i) {
    uint8_t& pixel = mask.pixels[i];
    if (pixel == ignore_index_) {
      pixel = kUnlabelled;
    } else if (pixel >= class_names_.size()) {
      const size_t width = static_cast<size_t>(mask.width);
      throw data_error(
          fmt::format("{}: {} at ({}, {}) is no class: {} names {} of them, from 0; data.ignore_index is "
                      "the number of pixels that have none ({})",
                      name, pixel, i % width, i / width, classes_from_, class_names_.size(), ignore_index_));
    }
  }
  return mask;
}

std::optional<ImageHeader> MaskFolder::header(size_t index) const {
  const std::optional<ImageHeader> header = ImageList::header(index);
  const std::string& name = masks_.at(index).name;
  const ImageHeader of_mask = header_of([&](uint64_t most) { return masks_.at(index).read(most); }, name);
  const ImageSize size = size_as_read(*header, orientation()), mask{of_mask.height, of_mask.width};
  if (size != mask)
    throw data_error(fmt::format("{}: {}x{} pixels, its mask {} has {}x{}: the mask is of another image",
                                 describe(index), size.width, size.height, name, mask.width, mask.height));
  return header;
}

}  // namespace

std::unique_ptr<Dataset> open_mask_folder(const DatasetSpec& spec) { return std::make_unique<MaskFolder>(spec); }

}  // namespace octet
