// SPDX-License-Identifier: Apache-2.0
#include "src/data/image_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/names.h"
#include "src/base/text.h"
#include "src/data/dataset.h"
#include "src/net/graph.h"

namespace octet {
namespace {

/// How well-known networks take their images.
struct Preset {
  Fit fit;
  double resize;  ///< the shorter side before the crop, as a multiple of the input's height; 0: none
  ChannelOrder order;
  double scale;  ///< of the values that mean and deviation are of: 1, or 255 for pixels as they are
  std::vector<double> mean, std;
};

enum class PresetName { imagenet, yolo, yolox, none };
constexpr std::array<Named<PresetName>, 4> kPresets = {{{PresetName::imagenet, "imagenet"},
                                                        {PresetName::yolo, "yolo"},
                                                        {PresetName::yolox, "yolox"},
                                                        {PresetName::none, "none"}}};

Preset preset(PresetName name) {
  switch (name) {
    case PresetName::imagenet:  // torchvision's references/classification/presets.py
      return {Fit::crop, 256.0 / 224, ChannelOrder::rgb, 1, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
    case PresetName::yolo:  // Ultralytics
      return {Fit::letterbox, 0, ChannelOrder::rgb, 1, {0}, {1}};
    case PresetName::yolox:  // Megvii
      return {Fit::letterbox_corner, 0, ChannelOrder::bgr, 255, {0}, {1}};
    case PresetName::none:
      return {Fit::crop, 0, ChannelOrder::rgb, 1, {0}, {1}};
  }
  return {};
}

/// Returns one value for each channel of the input, where one is given for all.
std::vector<float> for_channels(const std::vector<double>& values, double scale, int channels, const char* option) {
  std::vector<float> result;
  for (const double value : values) {
    if (!std::isfinite(value) || (std::string_view(option) == "--std" && value <= 0))
      throw usage_error(fmt::format("{}: {} is no {}", option, value,
                                    std::string_view(option) == "--std" ? "deviation: more than 0" : "mean"));
    result.push_back(static_cast<float>(value / scale));
  }
  if (result.size() == 1) result.resize(static_cast<size_t>(channels), result.front());
  if (result.size() != static_cast<size_t>(channels))
    throw usage_error(
        fmt::format("{}: {} values for an input of {}", option, values.size(), counted(channels, "channel")));
  return result;
}

}  // namespace

std::string ImageOptions::first_given() const {
  for (const auto& [name, given] :
       {std::pair{"--preset", !preset.empty()}, std::pair{"--fit", !fit.empty()}, std::pair{"--order", !order.empty()},
        std::pair{"--orientation", !orientation.empty()}, std::pair{"--mean", !mean.empty()},
        std::pair{"--std", !std.empty()}, std::pair{"--scale", scale.has_value()},
        std::pair{"--resize", resize.has_value()}})
    if (given) return name;
  return "";
}

Preprocessing preprocessing_of(const ImageOptions& options, const Shape& input) {
  if (options.preset.empty() && (options.mean.empty() || options.std.empty()))
    throw usage_error(
        "how do images become the network's input? --preset imagenet (256 to 224, mean and deviation of ImageNet), "
        "yolo (letterbox, RGB, 0..1), yolox (letterbox in the corner, BGR, 0..255) or none (centre, RGB, 0..1); or "
        "--mean and --std with --resize, --fit, --order bgr, --scale 255");
  if (options.scale && *options.scale != 1 && *options.scale != 255)
    throw usage_error(fmt::format("--scale: {:g}; takes 1 or 255", *options.scale));
  const Preset from = preset(value_named(kPresets, options.preset.empty() ? "none" : options.preset, "--preset"));
  const bool plain = options.preset.empty() || options.preset == "none";
  if (options.scale && !plain && (options.mean.empty() || options.std.empty()))
    throw usage_error("--scale says what --mean and --std are of: give both, or leave --scale out");
  const double given = options.scale.value_or(from.scale), usual = plain ? given : from.scale;
  Preprocessing p;
  p.fit = options.fit.empty() ? from.fit : value_named(kFits, options.fit, "--fit");
  if (p.fit == Fit::tensor)
    throw usage_error(
        "--fit tensor: there is nothing to fit in ready inputs, which --tensors FILE takes without --fit");
  p.order = options.order.empty() ? from.order : value_named(kChannelOrders, options.order, "--order");
  if (input.c == 1 && options.order == "bgr")
    throw usage_error("--order bgr: the network takes images of one channel; leave it out");
  if (input.c == 1) p.order = ChannelOrder::rgb;
  p.resize = options.resize.value_or(static_cast<int>(std::lround(from.resize * std::min(input.h, input.w))));
  if (p.fit != Fit::crop) {
    if (options.resize)
      throw usage_error(
          fmt::format("--resize is the shorter side before a crop; --fit {} has none", name_in(kFits, p.fit)));
    p.resize = 0;
  }
  p.crop = p.fit == Fit::crop && input.h == input.w ? input.h : 0;
  p.even_margin = p.fit == Fit::crop;
  p.exif_orientation = options.orientation.empty() ||
                       value_named(kOrientations, options.orientation, "--orientation") == Orientation::exif;
  p.mean = for_channels(options.mean.empty() ? from.mean : options.mean, options.mean.empty() ? usual : given, input.c,
                        "--mean");
  p.std =
      for_channels(options.std.empty() ? from.std : options.std, options.std.empty() ? usual : given, input.c, "--std");
  return p;
}

std::optional<BoxHeadKind> box_head_of(const ImageOptions& options) {
  if (options.preset == "yolox") return BoxHeadKind::yolox;
  if (options.preset == "yolo") return BoxHeadKind::yolo_dfl;
  return std::nullopt;
}

}  // namespace octet
