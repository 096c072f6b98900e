// SPDX-License-Identifier: Apache-2.0
// The section of report.html with test images and the classes of their pixels, or with boxes, as images inside the
// page.
#include <fmt/format.h>

#include <array>

#include "src/base/text.h"
#include "src/report/html.h"
#include "src/report/report.h"

namespace octet {
namespace {

using Colour = std::array<uint8_t, 3>;

/// The colours of classes: a dark one for the first, usually the background, then Okabe & Ito's.
constexpr std::array<Colour, 8> kClasses = {{{44, 49, 56},
                                             {230, 159, 0},
                                             {86, 180, 233},
                                             {0, 158, 115},
                                             {240, 228, 66},
                                             {0, 114, 178},
                                             {204, 121, 167},
                                             {255, 255, 255}}};
constexpr Colour kNobodyKnows = {122, 130, 140}, kSame = {233, 236, 239}, kDiffers = {213, 94, 0};

Colour colour_of(int cls) {
  return cls == kNoLabel ? kNobodyKnows : kClasses[static_cast<size_t>(cls) % kClasses.size()];
}

/// Encodes bytes in base 64 (RFC 4648).
std::string base64(const std::string& bytes) {
  constexpr const char* kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (int k = 0; k < 4; ++k) {
      const bool padding = i + static_cast<size_t>(k) > bytes.size();
      text += padding ? '=' : kLetters[three >> (18 - 6 * k) & 63];
    }
  }
  return text;
}

std::string image_figure(const Image& image, const std::string& caption) {
  return fmt::format(
      "<figure><img alt=\"{0}\" src=\"data:image/png;base64,{1}\"/><figcaption>{0}</figcaption></figure>\n",
      html_escape(caption), base64(encode_png(image)));
}

template <typename ColourAt>
Image painted(const ReportMasks& masks, const ColourAt& colour_at) {
  Image image{masks.image.height, masks.image.width, 3, {}};
  for (size_t i = 0; i < masks.truth.size(); ++i) {
    const Colour colour = colour_at(i);
    image.pixels.insert(image.pixels.end(), colour.begin(), colour.end());
  }
  return image;
}

Image painted(const ReportMasks& masks, const std::vector<int>& classes) {
  return painted(masks, [&](size_t i) { return colour_of(classes[i]); });
}

long differing(const ReportMasks& masks) {
  long count = 0;
  for (size_t i = 0; i < masks.int8.size(); ++i) count += masks.before[i] != masks.int8[i];
  return count;
}

std::string boxes_section(const Report& report, const std::string& int8) {
  std::string html = fmt::format(
      "<section id=\"images\"><h2>Images</h2>\n<p>Of the test images with labels those on which {} is furthest "
      "below float, then those on which it finds least: what is there, and what the networks find with a score of {} "
      "or more. AP: of the image alone.</p>\n",
      html_escape(int8), kShownScore);
  const auto found = [](const std::string& name, double ap) { return fmt::format("{}, AP {}", name, percent(ap, 1)); };
  for (const ReportBoxes& boxes : report.boxes)
    html += "<div class=\"images three\">\n" + image_figure(boxes.truth, boxes.name) +
            image_figure(boxes.before, found("float", boxes.before_ap)) +
            image_figure(boxes.int8, found(int8, boxes.int8_ap)) + "</div>\n";
  return html + "</section>\n";
}

}  // namespace

std::string images_section(const Report& report) {
  const Row* shipped = int8_row(report);
  const std::string int8 = shipped ? shipped->evaluation.name : "int8";
  if (!report.boxes.empty()) return boxes_section(report, int8);
  if (report.masks.empty()) return "";
  std::string html = fmt::format(
      "<section id=\"images\"><h2>Images</h2>\n<p>The test images on which {} is furthest below float by mean "
      "IoU, of the image alone; of equally far ones those in which more pixels differ. What the pixels are, and what "
      "the networks take them for.</p>\n<p>",
      html_escape(int8));
  for (size_t c = 0; c < report.class_names.size(); ++c) {
    const Colour colour = colour_of(static_cast<int>(c));
    html += fmt::format("<span class=\"key\" style=\"background: rgb({}, {}, {})\"></span> {} ", colour[0], colour[1],
                        colour[2], html_escape(class_label(report, c)));
  }
  html += "</p>\n";
  const auto scored = [](const std::string& name, double iou) {
    return fmt::format("{}, mean IoU {}", name, percent(iou, 1));
  };
  for (const ReportMasks& masks : report.masks) {
    const Image differences =
        painted(masks, [&](size_t i) { return masks.before[i] == masks.int8[i] ? kSame : kDiffers; });
    html += "<div class=\"images\">\n" + image_figure(masks.image, masks.name) +
            image_figure(painted(masks, masks.truth), "truth") +
            image_figure(painted(masks, masks.before), scored("float", masks.before_iou)) +
            image_figure(painted(masks, masks.int8), scored(int8, masks.int8_iou)) +
            image_figure(differences, "differing: " + counted(differing(masks), "pixel")) + "</div>\n";
  }
  return html + "</section>\n";
}

}  // namespace octet
