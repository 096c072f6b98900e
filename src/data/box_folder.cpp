// SPDX-License-Identifier: Apache-2.0
#include "src/data/box_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "src/base/error.h"
#include "src/data/box_annotations.h"
#include "src/data/image_files.h"
#include "src/data/image_folder.h"

namespace octet {
namespace {

namespace fs = std::filesystem;

/// The endings of an image that Pascal VOC's lists name without one; its own files have the first.
constexpr std::array<const char*, 8> kVocEndings = {".jpg", ".JPG", ".jpeg", ".JPEG", ".png", ".PNG", ".bmp", ".webp"};

constexpr const char* kLeaveOut = "; a recipe's data.leave_out_faults: true leaves such out";

std::string annotations_of(const FileTree& tree, const std::string& split) {
  const std::vector<std::string> places = {split + ".json", "annotations/" + split + ".json",
                                           "annotations/instances_" + split + ".json",
                                           split + "/_annotations.coco.json"};
  std::vector<std::string> names;
  for (const std::string& place : places) {
    if (tree.is_file(place)) return place;
    names.push_back(tree.describe(place));
  }
  throw data_error(
      fmt::format("no annotations in COCO's JSON: none of {} exists; see data.path, data.train, "
                  "data.validation, data.test",
                  fmt::join(names, ", ")));
}

std::string images_of(const FileTree& tree, const std::string& split) {
  for (const std::string& folder : {"images/" + split, split, std::string("images")})
    if (tree.is_folder(folder)) return folder;
  return "";
}

/// Returns the files of the images. Throws for the first that is missing, or takes those out of the annotations.
std::vector<StoredFile> image_files(BoxAnnotations& annotations, const FileTree& tree, const std::string& folder,
                                    const std::string& file, bool leave_out) {
  std::vector<StoredFile> files;
  std::vector<BoxAnnotations::AnnotatedImage> found;
  std::string first;
  for (BoxAnnotations::AnnotatedImage& image : annotations.images) {
    const std::string name = (fs::path(folder) / image.file).string();
    const StoredFile stored = tree.file(name);
    if (tree.is_file(name)) {
      files.push_back(stored);
      found.push_back(std::move(image));
    } else if (first.empty()) {
      first = stored.name;
    }
  }
  const size_t all = annotations.images.size(), missing = all - found.size();
  annotations.images = std::move(found);
  if (all == 0) throw data_error(file + ": lists no image");
  if (missing == 0) return files;
  const std::string what =
      fmt::format("{} of its {} images are not in {}, the first: {}", missing, all, tree.describe(folder), first);
  if (!leave_out || files.empty())
    throw data_error(fmt::format("{}: {}{}", file, what, files.empty() ? "" : kLeaveOut));
  annotations.notes.push_back(what + "; left out");
  return files;
}

}  // namespace

std::pair<std::string, std::string> yolo_folders(const FileTree& tree, const DatasetSpec& spec) {
  const fs::path named = fs::path(spec.split).lexically_normal();
  std::vector<fs::path> parts(named.begin(), named.end());
  const auto last = std::find(parts.rbegin(), parts.rend(), "images");
  if (last != parts.rend()) *last = "labels";
  fs::path labels;
  for (const fs::path& part : parts) labels /= part;
  std::vector<std::string> tried;
  for (const auto& [images, beside] :
       std::vector<std::pair<fs::path, fs::path>>{{fs::path("images") / spec.split, fs::path("labels") / spec.split},
                                                  {named / "images", named / "labels"},
                                                  {named, labels}}) {
    if (images == beside) continue;
    if (tree.is_folder(images.string()) && tree.is_folder(beside.string())) return {images.string(), beside.string()};
    tried.push_back(fmt::format("{} with {}", tree.describe(images.string()), tree.describe(beside.string())));
  }
  throw data_error(
      fmt::format("{}: no folder of images beside one of labels for '{}'; looked for {}; see data.path, data.train, "
                  "data.validation, data.test",
                  spec.path, spec.split, fmt::join(tried, ", ")));
}

ImageSize annotated_size(double height, double width, const std::string& where) {
  if (!(height >= 0 && height <= 1e6) || !(width >= 0 && width <= 1e6) || (height == 0) != (width == 0))
    throw data_error(fmt::format("{}: height {} and width {}", where, height, width));
  return {static_cast<int>(height), static_cast<int>(width)};
}

void BoxFaults::look_at(const Box& box, const ImageSize& image, const std::string& where) {
  const bool known = image.width > 0;
  if (known &&
      (box.x < -1 || box.y < -1 || box.x + box.width > image.width + 1 || box.y + box.height > image.height + 1))
    count("box", "outside the image", where);
  if (box.area() == 0) count("box", "without area, which nothing can match", where);
}

void BoxFaults::leave_out(const std::string& noun, const std::string& where, const std::string& what) {
  const std::string place = fmt::format("{}: {}", where, what);
  if (!leaves_out_) throw data_error(place + kLeaveOut);
  count(noun, "left out", place);
}

void BoxFaults::count(const std::string& noun, const std::string& what, const std::string& where) {
  auto kind = std::find_if(kinds_.begin(), kinds_.end(),
                           [&](const Kind& known) { return known.noun == noun && known.what == what; });
  if (kind == kinds_.end()) kind = kinds_.insert(kind, {noun, what, 0, where});
  ++kind->count;
}

void BoxFaults::tell(std::vector<std::string>& notes) const {
  for (const Kind& kind : kinds_)
    notes.push_back(fmt::format("{} {}{} {}, the first: {}", kind.count, kind.noun,
                                kind.count == 1 ? "" : (kind.noun.ends_with("x") ? "es" : "s"), kind.what, kind.first));
}

namespace {

class BoxFolder : public ImageList {
 public:
  explicit BoxFolder(const DatasetSpec& spec);
  Labels labels() const override { return Labels::boxes; }
  int label(size_t index) const override;
  Image read(size_t index) const override;
  void require_size(size_t index, const ImageSize& size) const override;  ///< that the annotations say, if they do
  const std::vector<BoxLabel>& boxes(size_t index) const override { return boxes_.at(index); }

 private:
  void open_coco(const DatasetSpec& spec);
  void open_voc(const DatasetSpec& spec);
  void open_yolo(const DatasetSpec& spec);
  void take(BoxAnnotations annotations, const std::string& file);
  void take_classes(const DatasetSpec& spec, BoxAnnotations& annotations, const std::string& file);

  std::vector<std::vector<BoxLabel>> boxes_;  ///< by image
  std::vector<ImageSize> sizes_;              ///< by image; 0 x 0 where the annotations do not say
};

BoxFolder::BoxFolder(const DatasetSpec& spec) : ImageList(spec) {
  if (spec.format == "coco") open_coco(spec);
  if (spec.format == "voc") open_voc(spec);
  if (spec.format == "yolo") open_yolo(spec);
}

void BoxFolder::open_coco(const DatasetSpec& spec) {
  const FileTree tree(spec.path);
  const StoredFile stored = tree.file(annotations_of(tree, spec.split));
  const std::string& file = stored.name;
  BoxAnnotations annotations = parse_coco(stored.read(), file, spec.leave_out_faults);
  files_ = image_files(annotations, tree, images_of(tree, spec.split), file, spec.leave_out_faults);
  take_classes(spec, annotations, file);
  take(std::move(annotations), file);
}

void BoxFolder::open_voc(const DatasetSpec& spec) {
  const FileTree tree(spec.path);
  const std::string list = "ImageSets/Main/" + spec.split + ".txt", images = "JPEGImages";
  if (!tree.is_file(list))
    throw data_error(
        fmt::format("{}: no such file: it would list the images of split '{}'; see data.path, data.train, "
                    "data.validation, data.test",
                    tree.describe(list), spec.split));
  const StoredFile stored = tree.file(list);
  const std::vector<std::string> given = spec.classes.empty() ? spec.class_names : read_classes(spec.classes);
  BoxAnnotations annotations = read_voc(tree, "Annotations", read_voc_list(stored), given, spec.leave_out_faults);
  for (BoxAnnotations::AnnotatedImage& image : annotations.images) {
    const auto has = [&](const char* ending) {
      return tree.is_file(fmt::format("{}/{}{}", images, image.file, ending));
    };
    const auto found = std::find_if(kVocEndings.begin(), kVocEndings.end(), has);
    image.file += found != kVocEndings.end() ? *found : kVocEndings.front();
  }
  files_ = image_files(annotations, tree, images, stored.name, spec.leave_out_faults);
  for (const BoxAnnotations::Category& category : annotations.categories) class_names_.push_back(category.name);
  take(std::move(annotations), stored.name);
}

void BoxFolder::open_yolo(const DatasetSpec& spec) {
  class_names_ = spec.classes.empty() ? spec.class_names : read_classes(spec.classes);
  if (class_names_.empty())
    throw data_error(spec.path +
                     ": nothing says what the classes of YOLO's labels are: name them in data.class_names, "
                     "a file in data.classes, or data.path's data.yaml");
  const FileTree tree(spec.path);
  const auto [images, labels] = yolo_folders(tree, spec);
  LeftOut left_out;
  const std::string name = tree.describe(images);
  files_ = tree.images(images, left_out);
  if (files_.empty()) throw data_error(fmt::format("{}: no image (JPEG, PNG, BMP, WebP){}", name, left_out.text()));
  take(read_yolo(*this, tree, images, labels, class_names_, spec.leave_out_faults), tree.describe(labels));
  for (const std::string& note : left_out.notes(name)) notes_.push_back(note);
}

void BoxFolder::take(BoxAnnotations annotations, const std::string& file) {
  for (BoxAnnotations::AnnotatedImage& image : annotations.images) {
    boxes_.push_back(std::move(image.labels));
    sizes_.push_back(image.size);
  }
  for (const std::string& note : annotations.notes) notes_.push_back(fmt::format("{}: {}", file, note));
}

/// Sets class_names_ and makes class indices of the labels' categories.
void BoxFolder::take_classes(const DatasetSpec& spec, BoxAnnotations& annotations, const std::string& file) {
  class_names_ = spec.classes.empty() ? spec.class_names : read_classes(spec.classes);
  if (class_names_.empty())
    for (const BoxAnnotations::Category& category : annotations.categories) {
      if (std::find(class_names_.begin(), class_names_.end(), category.name) != class_names_.end())
        throw data_error(fmt::format("{}: two categories are called '{}'; rename one, or give both's boxes one id",
                                     file, category.name));
      class_names_.push_back(category.name);
    }
  BoxFaults faults(spec.leave_out_faults);
  for (BoxAnnotations::AnnotatedImage& image : annotations.images)
    std::erase_if(image.labels, [&](BoxLabel& label) {
      const std::string& name = annotations.categories[static_cast<size_t>(label.class_index)].name;
      const auto found = std::find(class_names_.begin(), class_names_.end(), name);
      label.class_index = static_cast<int>(found - class_names_.begin());
      if (found != class_names_.end()) return false;
      faults.leave_out(
          "box", fmt::format("{}: {}", file, image.file),
          fmt::format("a box of category '{}', which is none of the {} classes of {} ({} ...)", name,
                      class_names_.size(), classes_from(spec), class_names_.empty() ? "" : class_names_.front()));
      return true;
    });
  faults.tell(annotations.notes);
}

int BoxFolder::label(size_t index) const {
  throw usage_error(describe(index) + ": its boxes have classes, the image has none");
}

Image BoxFolder::read(size_t index) const {
  Image image = ImageList::read(index);
  require_size(index, {image.height, image.width});
  return image;
}

void BoxFolder::require_size(size_t index, const ImageSize& size) const {
  if (const ImageSize& said = sizes_.at(index); said.width != 0 && said != size)
    throw data_error(fmt::format("{}: {}x{} pixels, the annotations say {}x{}: the boxes are of another image",
                                 describe(index), size.width, size.height, said.width, said.height));
}

}  // namespace

std::unique_ptr<Dataset> open_box_folder(const DatasetSpec& spec) { return std::make_unique<BoxFolder>(spec); }

}  // namespace octet
