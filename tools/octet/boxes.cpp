// SPDX-License-Identifier: Apache-2.0
#include "tools/octet/boxes.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/detect/decode.h"

namespace octet::cli {

std::string class_name(const Int8Graph& graph, int index) {
  return index < static_cast<int>(graph.class_names.size()) ? graph.class_names[index] : fmt::format("class {}", index);
}

DrawnImages::DrawnImages(std::string out, std::string ending, const std::vector<std::string>& images)
    : out_(std::move(out)), ending_(std::move(ending)) {
  if (out_.empty()) return;
  if (!std::filesystem::is_directory(out_)) {
    if (images.size() > 1 || !out_.ends_with(".png"))
      throw usage_error(fmt::format("--out {}: name a .png for one image, or a folder that exists", out_));
    require_place_for(out_);
  }
  std::set<std::string> files;
  for (const std::string& image : images) {
    if (!files.insert(file(image)).second)
      throw usage_error(fmt::format("--out {}: two images would be {}; give them in two calls", out_, file(image)));
    std::error_code none;
    if (std::filesystem::equivalent(file(image), image, none))
      throw usage_error(fmt::format("--out {}: this would replace the image itself; name another file", out_));
  }
}

std::string DrawnImages::file(const std::string& image) const {
  if (!std::filesystem::is_directory(out_)) return out_;
  return (std::filesystem::path(out_) / (std::filesystem::path(image).stem().string() + ending_)).string();
}

void DrawnImages::write(const std::string& image, const Image& drawn) const {
  write_file_atomically(file(image), encode_png(drawn));
}

FoundBoxes::FoundBoxes(const Int8Graph& graph, std::optional<double> score, const DrawnImages& drawn_images)
    : graph_(graph), drawn_images_(drawn_images) {
  if (!graph.boxes) return;
  options_ = box_options(*graph.boxes);
  options_.score_threshold = score.value_or(options_.score_threshold);
}

void FoundBoxes::add(const std::string& file, const Image& whole, const BatchOutputs& outputs) {
  const ImageSize size{whole.height, whole.width};
  images_.push_back({file, size, decode_boxes(graph_, outputs, 0, size, options_)});
  if (drawn_images_.wanted()) drawn_images_.write(file, draw_boxes(whole, images_.back().boxes, graph_.class_names));
}

std::string FoundBoxes::text() const {
  std::string out;
  for (const OfImage& image : images_) {
    TextTable table({{image.file, Align::left}, {"score"}, {"x"}, {"y"}, {"width"}, {"height"}});
    for (const Detection& d : image.boxes)
      table.add_row({class_name(graph_, d.class_index), percent(d.score, 1), fmt::format("{:.1f}", d.box.x),
                     fmt::format("{:.1f}", d.box.y), fmt::format("{:.1f}", d.box.width),
                     fmt::format("{:.1f}", d.box.height)});
    if (image.boxes.empty())
      table.add_row({fmt::format("no box of a score of {} or more", percent(options_.score_threshold, 1))});
    out += table.render() + "\n";
  }
  return out;
}

std::string FoundBoxes::json() const {
  const auto hundredth = [](double value) { return std::round(100 * value) / 100; };
  nlohmann::ordered_json document = nlohmann::ordered_json::array();
  for (const OfImage& image : images_) {
    nlohmann::ordered_json boxes = nlohmann::ordered_json::array();
    for (const Detection& d : image.boxes)
      boxes.push_back({{"class", d.class_index},
                       {"name", class_name(graph_, d.class_index)},
                       {"score", std::round(1e4 * d.score) / 1e4},
                       {"x", hundredth(d.box.x)},
                       {"y", hundredth(d.box.y)},
                       {"width", hundredth(d.box.width)},
                       {"height", hundredth(d.box.height)}});
    document.push_back(
        {{"image", image.file}, {"width", image.size.width}, {"height", image.size.height}, {"boxes", boxes}});
  }
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace octet::cli
