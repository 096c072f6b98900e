// SPDX-License-Identifier: Apache-2.0
// octet evaluate FILE --images FOLDER --boxes ANNOTATIONS: the AP of a detector.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/base/threads.h"
#include "src/data/box_annotations.h"
#include "src/data/decoders.h"
#include "src/data/image_files.h"
#include "src/data/image_folder.h"
#include "src/data/loader.h"
#include "src/engine/engine.h"
#include "src/eval/metrics.h"
#include "tools/octet/boxes.h"
#include "tools/octet/target.h"
#include "tools/octet/trained.h"

namespace octet::cli {
namespace {

constexpr int kBoxBatch = 8;
using Json = nlohmann::ordered_json;

/// The network's classes and the annotations' categories, each by the other.
struct ClassMap {
  std::vector<int> class_of;     ///< by category: the network's class, -1 if it has none
  std::vector<int> category_of;  ///< by class: -1 if no category is called so
};

/// Finds the class of each category: by name, or by order where the network's classes have no names.
ClassMap map_classes(const BoxAnnotations& annotations, const std::vector<std::string>& names, int classes,
                     const std::string& file) {
  ClassMap map{std::vector<int>(annotations.categories.size(), -1), std::vector<int>(static_cast<size_t>(classes), -1)};
  const bool by_order = names.empty();
  if (by_order && annotations.categories.size() != static_cast<size_t>(classes))
    throw usage_error(fmt::format(
        "{}: {} categories, and the network has {} classes without names; --classes-file FILE names them, a line a "
        "class, in their order",
        file, annotations.categories.size(), classes));
  if (by_order)
    say(fmt::format("note: the network's classes have no names: taken in the order of {}'s categories", file));
  std::vector<long> labels(map.class_of.size());
  for (const BoxAnnotations::AnnotatedImage& image : annotations.images)
    for (const BoxLabel& label : image.labels) ++labels[static_cast<size_t>(label.class_index)];
  for (size_t c = 0; c < map.class_of.size(); ++c) {
    const std::string& name = annotations.categories[c].name;
    const auto found = std::find(names.begin(), names.end(), name);
    const int class_index = static_cast<int>(by_order ? c : static_cast<size_t>(found - names.begin()));
    if (class_index == classes) {
      if (labels[c] == 0) continue;
      throw usage_error(fmt::format(
          "{}: category '{}' ({} boxes) is none of the network's classes ({} ...); --classes-file FILE names the "
          "network's classes as the annotations do, in their order",
          file, name, labels[c], names.front()));
    }
    map.class_of[c] = class_index;
    map.category_of[static_cast<size_t>(class_index)] = static_cast<int>(c);
  }
  if (const auto absent = std::count(map.category_of.begin(), map.category_of.end(), -1); absent > 0)
    say(fmt::format("note: {}: no category for {} of the network's {} classes, which are not scored", file, absent,
                    classes));
  return map;
}

/// Removes images that are not in the folder, or throws. Returns how many there were.
long remove_missing(BoxAnnotations& annotations, const std::string& folder, const BoxEvaluation& boxes) {
  std::string first;
  const auto missing = [&](const BoxAnnotations::AnnotatedImage& image) {
    const bool there = std::filesystem::is_regular_file(std::filesystem::path(folder) / image.file);
    if (!there && first.empty()) first = fmt::format("'{}' (id {})", image.file, image.id);
    return !there;
  };
  const auto count = static_cast<long>(std::erase_if(annotations.images, missing));
  if (count == 0) return 0;
  const std::string text =
      fmt::format("{}: {} of the images are not in {}, the first: {}", boxes.annotations, count, folder, first);
  if (annotations.images.empty()) throw data_error(text);
  if (!boxes.skip_missing) throw data_error(text + "; --skip-missing leaves them out");
  say("note: " + text + "; left out");
  return count;
}

/// Returns the size of an image as it is read, held to what the annotations say.
ImageSize size_of(const ImageList& images, size_t index, const BoxAnnotations::AnnotatedImage& annotated) {
  const ImageSize size = size_as_read(*images.header(index), images.orientation());
  if (annotated.size.width != 0 && size != annotated.size)
    throw data_error(fmt::format("{}: {}x{} pixels, the annotations say {}x{}: the boxes are of another image",
                                 images.describe(index), size.width, size.height, annotated.size.width,
                                 annotated.size.height));
  return size;
}

/// Runs the network on all images; returns what it found, in the order of the annotations.
std::vector<std::vector<Detection>> detect(const Int8Graph& graph, Program& program, const BoxAnnotations& annotations,
                                           const std::string& folder) {
  std::vector<std::string> files;
  for (const BoxAnnotations::AnnotatedImage& image : annotations.images)
    files.push_back((std::filesystem::path(folder) / image.file).string());
  const ImageList images(files, graph.input_shape().c, orientation_of(graph));
  std::vector<size_t> all(images.size());
  std::iota(all.begin(), all.end(), size_t{0});
  Loader loader(images, all, evaluation_transform(graph.input_shape(), graph.preprocessing), {.batch_size = kBoxBatch});
  const OutputBuffers outputs(graph, kBoxBatch);
  const BoxOptions options = measuring_options(*graph.boxes);
  std::vector<std::vector<Detection>> found;
  Progress progress("detect", static_cast<int>(images.size()), "images");
  for (Batch batch; loader.next(batch); progress.update(static_cast<int>(found.size()))) {
    program.run(batch.images.data(), batch.size, outputs.memory());
    for (int i = 0; i < batch.size; ++i) {
      const size_t index = batch.indices[static_cast<size_t>(i)];
      const ImageSize size = size_of(images, index, annotations.images[index]);
      found.push_back(decode_boxes(graph, outputs.all(), i, size, options));
    }
    throw_if_interrupted();
  }
  return found;
}

void write_detections(const std::string& path, const BoxAnnotations& annotations, const ClassMap& map,
                      const std::vector<std::vector<Detection>>& found) {
  Json results = Json::array();
  for (size_t i = 0; i < found.size(); ++i)
    for (const Detection& d : found[i]) {
      const int category = map.category_of[static_cast<size_t>(d.class_index)];
      if (category < 0) continue;
      results.push_back({{"image_id", annotations.images[i].id},
                         {"category_id", annotations.categories[static_cast<size_t>(category)].id},
                         {"bbox", {d.box.x, d.box.y, d.box.width, d.box.height}},
                         {"score", d.score}});
    }
  write_file_atomically(path, results.dump());
}

std::string share(double value) { return std::isnan(value) ? "-" : percent(value, 1); }

std::string text(const AveragePrecision& ap, const std::vector<std::string>& names) {
  TextTable all({{"boxes", Align::left}, {"AP"}, {"AP50"}, {"AP75"}, {"small"}, {"medium"}, {"large"}});
  const auto sizes = [](std::vector<std::string> row, const std::array<double, 3>& of_size) {
    for (const double value : of_size) row.push_back(share(value));
    return row;
  };
  all.add_row(sizes({"precision", share(ap.ap), share(ap.ap50), share(ap.ap75)}, ap.ap_of_size));
  all.add_row(sizes({"recall", share(ap.recall_of_best.back()), "", ""}, ap.recall_of_size));
  TextTable table({{"class", Align::left}, {"boxes"}, {"AP"}, {"AP50"}, {"AP75"}});
  for (size_t c = 0; c < ap.of_class.size(); ++c)
    if (const AveragePrecision::OfClass& of = ap.of_class[c]; of.labels > 0)
      table.add_row({names[c], fmt::format("{}", of.labels), share(of.ap), share(of.ap50), share(of.ap75)});
  return all.render() + "\n" + table.render();
}

Json json(const AveragePrecision& ap, const std::vector<std::string>& names) {
  Json classes = Json::array();
  for (size_t c = 0; c < ap.of_class.size(); ++c) {
    const AveragePrecision::OfClass& of = ap.of_class[c];
    classes.push_back(
        {{"class", c}, {"name", names[c]}, {"boxes", of.labels}, {"ap", of.ap}, {"ap50", of.ap50}, {"ap75", of.ap75}});
  }
  Json document = {{"ap", ap.ap}, {"ap50", ap.ap50}, {"ap75", ap.ap75}};
  constexpr const char* kSizes[] = {"small", "medium", "large"};
  for (size_t i = 0; i < 3; ++i) document[fmt::format("ap_{}", kSizes[i])] = ap.ap_of_size[i];
  constexpr int kBest[] = {1, 10, 100};
  for (size_t i = 0; i < 3; ++i) document[fmt::format("ar_{}", kBest[i])] = ap.recall_of_best[i];
  for (size_t i = 0; i < 3; ++i) document[fmt::format("ar_{}", kSizes[i])] = ap.recall_of_size[i];
  document["classes"] = classes;
  return document;
}

/// A network whose boxes are measured.
struct Detector {
  Int8Graph graph;     ///< of a float .onnx file its ends
  std::string engine;  ///< that runs it; "": none, it is the float network
  std::unique_ptr<Program> program;
};

Detector open_detector(const Common& common, const MeasureOptions& options) {
  if (is_float_file(common, options)) {
    FloatFile file = float_file(common, options, /*boxes=*/true);
    return {std::move(file.ends), "", std::move(file.program)};
  }
  Detector detector{open_checkpoint(options.run).graph, "", nullptr};
  require_boxes(detector.graph);
  require_images(detector.graph);
  detector.engine =
      resolve_engines(options.engines.empty() ? std::vector<std::string>{"auto"} : options.engines, devices(common))
          .front();
  const std::string fallback = options.fallback.value_or("none");
  check_fallback("evaluate: ", fallback, {detector.engine});
  detector.program =
      find_engine(detector.engine)
          .compile(detector.graph,
                   {.max_batch = kBoxBatch, .threads = options.threads.value_or(0), .fallback = fallback});
  return detector;
}

}  // namespace

ExitCode evaluate_boxes(const Common& common, const MeasureOptions& options, const BoxEvaluation& boxes) {
  if (options.image_paths.size() != 1 || !std::filesystem::is_directory(options.image_paths.front()))
    throw usage_error("evaluate --boxes: give --images FOLDER, the folder that the annotations' file names are in");
  if (!boxes.detections.empty()) require_place_for(boxes.detections);
  const Detector detector = open_detector(common, options);
  const Int8Graph& graph = detector.graph;
  const int classes = box_classes(graph);
  std::vector<std::string> names = boxes.classes.empty() ? graph.class_names : read_classes(boxes.classes);
  if (!names.empty() && names.size() != static_cast<size_t>(classes))
    throw usage_error(fmt::format("{}: {} classes, {} has {}", boxes.classes, names.size(), options.run, classes));
  BoxAnnotations annotations = read_coco(boxes.annotations);
  for (const std::string& note : annotations.notes) say(fmt::format("note: {}", note));
  const std::string& folder = options.image_paths.front();
  const long missing = remove_missing(annotations, folder, boxes);
  if (options.images > 0 && annotations.images.size() > static_cast<size_t>(options.images))
    annotations.images.resize(static_cast<size_t>(options.images));
  const ClassMap map = map_classes(annotations, names, classes, boxes.annotations);

  const std::vector<std::vector<Detection>> found = detect(graph, *detector.program, annotations, folder);
  std::vector<ImageBoxes> images(found.size());
  long labels = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    images[i] = {annotations.images[i].labels, found[i]};
    for (BoxLabel& label : images[i].labels) label.class_index = map.class_of[static_cast<size_t>(label.class_index)];
    labels += static_cast<long>(images[i].labels.size());
  }
  const AveragePrecision ap = average_precision(images, classes);
  if (!boxes.detections.empty()) write_detections(boxes.detections, annotations, map, found);
  if (names.empty())
    for (const BoxAnnotations::Category& category : annotations.categories) names.push_back(category.name);
  const BoxOptions how = measuring_options(*graph.boxes);
  const std::string caption =
      fmt::format("{} on {}, {}; score {} and more, IoU {} within a class; {}", graph.name,
                  counted(static_cast<long>(images.size()), "image"),
                  labels == 1 ? "1 box" : fmt::format("{} boxes", labels), how.score_threshold, how.iou_threshold,
                  detector.engine.empty() ? "the float network" : "engine " + detector.engine);
  print_result(common, text(ap, names) + "\n" + caption, [&] {
    Json document = {{"checkpoint", options.run},
                     {"engine", detector.engine.empty() ? Json(nullptr) : Json(detector.engine)},
                     {"images", images.size()},
                     {"missing_images", missing},
                     {"boxes", labels}};
    document.update(json(ap, names));
    return document.dump(2, ' ', false, Json::error_handler_t::replace);
  });
  return ExitCode::ok;
}

}  // namespace octet::cli
