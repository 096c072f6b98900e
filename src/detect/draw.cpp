// SPDX-License-Identifier: Apache-2.0
#include "src/detect/decode.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <map>

#include "src/data/decoders.h"

namespace octet {
namespace {

using Colour = std::array<uint8_t, 3>;

/// Returns a bright colour; neighbouring classes have hues that are far apart (the golden ratio of the circle).
Colour colour_of(int class_index) {
  const double hue = std::fmod(class_index * 0.61803398875, 1.0) * 6;
  const auto channel = [&](double shift) {
    const double distance = std::abs(std::fmod(hue + shift, 6.0) - 3);  // of a hexagon's corner
    return static_cast<uint8_t>(std::lround(255 * (0.15 + 0.85 * std::clamp(distance - 1, 0.0, 1.0))));
  };
  return {channel(0), channel(4), channel(2)};
}

/// Fills a rectangle, of which what lies outside the image is left out.
void fill(Image& image, int left, int top, int right, int bottom, const Colour& colour) {
  for (int y = std::max(top, 0); y < std::min(bottom, image.height); ++y)
    for (int x = std::max(left, 0); x < std::min(right, image.width); ++x)
      std::copy(colour.begin(), colour.end(), &image.pixels[(static_cast<size_t>(y) * image.width + x) * 3]);
}

void frame(Image& image, const Box& box, int line, const Colour& colour) {
  const int left = static_cast<int>(std::lround(box.x)), top = static_cast<int>(std::lround(box.y));
  const int right = std::max(static_cast<int>(std::lround(box.x + box.width)), left + 1);
  const int bottom = std::max(static_cast<int>(std::lround(box.y + box.height)), top + 1);
  fill(image, left, top, right, top + line, colour);
  fill(image, left, bottom - line, right, bottom, colour);
  fill(image, left, top, left + line, bottom, colour);
  fill(image, right - line, top, right, bottom, colour);
}

/// Returns one char for each character of UTF-8 text.
std::string letters_of(const std::string& text) {
  std::string result;
  for (const char c : text)
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) result += c;
  return result;
}

/// Returns the size of a letter's pixels: letters of 14 pixels in an image of 480.
int scale_of(const Image& image) {
  constexpr int kPixelsOfScale = 240;
  return std::max(1, (std::min(image.height, image.width) + kPixelsOfScale / 2) / kPixelsOfScale);
}

constexpr int kLineHeight = kLetterHeight + 2;

std::string name_of(int class_index, std::span<const std::string> class_names) {
  const auto c = static_cast<size_t>(class_index);
  return c < class_names.size() ? class_names[c] : fmt::format("class {}", c);
}

/// Writes a line over a ground of `colour`, above a box or, at the upper border, within it.
void write(Image& image, const std::string& text, const Box& box, int scale, const Colour& colour) {
  const std::string line = letters_of(text);
  const int width = scale * (static_cast<int>(line.size()) * (kLetterWidth + 1) + 1), height = scale * kLineHeight;
  const int left = std::clamp(static_cast<int>(std::lround(box.x)), 0, std::max(image.width - width, 0));
  const int above = static_cast<int>(std::lround(box.y)) - height;
  const int top = above < 0 ? std::max(above + height, 0) : above;
  fill(image, left, top, left + width, top + height, colour);
  const double brightness = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2];  // ITU-R BT.601
  const Colour ink = brightness > 128 ? Colour{0, 0, 0} : Colour{255, 255, 255};
  for (size_t i = 0; i < line.size(); ++i) {
    const auto rows = letter(line[i]);
    for (int y = 0; y < kLetterHeight; ++y)
      for (int x = 0; x < kLetterWidth; ++x) {
        if ((rows[static_cast<size_t>(y)] >> (kLetterWidth - 1 - x) & 1) == 0) continue;
        const int px = left + scale * (1 + static_cast<int>(i) * (kLetterWidth + 1) + x), py = top + scale * (1 + y);
        fill(image, px, py, px + scale, py + scale, ink);
      }
  }
}

}  // namespace

Image draw_boxes(const Image& image, std::span<const Detection> detections, std::span<const std::string> class_names) {
  Image result = in_colour(image);
  const int scale = scale_of(image);
  std::vector<Detection> order(detections.begin(), detections.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const Detection& a, const Detection& b) { return a.score < b.score; });  // the best on top
  for (const Detection& d : order) frame(result, d.box, scale, colour_of(d.class_index));
  for (const Detection& d : order) {
    const std::string name = name_of(d.class_index, class_names);
    write(result, fmt::format("{} {:.2f}", name, d.score), d.box, scale, colour_of(d.class_index));
  }
  return result;
}

Image draw_classes(const Image& image, const Image& mask, std::span<const std::string> class_names) {
  Image result = in_colour(image);
  std::map<int, long> pixels;  // by class
  for (size_t i = 0; i < mask.pixels.size(); ++i) {
    if (mask.pixels[i] == kUnlabelled) continue;
    ++pixels[mask.pixels[i]];
    const Colour colour = colour_of(mask.pixels[i]);
    uint8_t* pixel = &result.pixels[3 * i];
    for (size_t c = 0; c < colour.size(); ++c) pixel[c] = static_cast<uint8_t>((pixel[c] + colour[c] + 1) / 2);
  }
  std::vector<std::pair<long, int>> order;
  for (const auto& [class_index, count] : pixels) order.emplace_back(-count, class_index);
  std::sort(order.begin(), order.end());
  const int scale = scale_of(image);
  double below = 0;
  for (const auto& [count, class_index] : order) {
    below += scale * kLineHeight;
    write(result, name_of(class_index, class_names), {0, below, 0, 0}, scale, colour_of(class_index));
  }
  return result;
}

namespace {

struct Letter {
  char character;
  std::array<uint8_t, kLetterHeight> rows;
};

constexpr Letter kLetters[] = {
    {' ', {0, 0, 0, 0, 0, 0, 0}},
    {'0', {0b01110, 0b10001, 0b10011, 0b10101, 0b11001, 0b10001, 0b01110}},
    {'1', {0b00100, 0b01100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110}},
    {'2', {0b01110, 0b10001, 0b00001, 0b00110, 0b01000, 0b10000, 0b11111}},
    {'3', {0b11110, 0b00001, 0b00001, 0b01110, 0b00001, 0b00001, 0b11110}},
    {'4', {0b00010, 0b00110, 0b01010, 0b10010, 0b11111, 0b00010, 0b00010}},
    {'5', {0b11111, 0b10000, 0b11110, 0b00001, 0b00001, 0b10001, 0b01110}},
    {'6', {0b00110, 0b01000, 0b10000, 0b11110, 0b10001, 0b10001, 0b01110}},
    {'7', {0b11111, 0b00001, 0b00010, 0b00100, 0b00100, 0b01000, 0b01000}},
    {'8', {0b01110, 0b10001, 0b10001, 0b01110, 0b10001, 0b10001, 0b01110}},
    {'9', {0b01110, 0b10001, 0b10001, 0b01111, 0b00001, 0b00010, 0b01100}},
    {'A', {0b01110, 0b10001, 0b10001, 0b11111, 0b10001, 0b10001, 0b10001}},
    {'B', {0b11110, 0b10001, 0b10001, 0b11110, 0b10001, 0b10001, 0b11110}},
    {'C', {0b01110, 0b10001, 0b10000, 0b10000, 0b10000, 0b10001, 0b01110}},
    {'D', {0b11110, 0b10001, 0b10001, 0b10001, 0b10001, 0b10001, 0b11110}},
    {'E', {0b11111, 0b10000, 0b10000, 0b11110, 0b10000, 0b10000, 0b11111}},
    {'F', {0b11111, 0b10000, 0b10000, 0b11110, 0b10000, 0b10000, 0b10000}},
    {'G', {0b01110, 0b10001, 0b10000, 0b10111, 0b10001, 0b10001, 0b01111}},
    {'H', {0b10001, 0b10001, 0b10001, 0b11111, 0b10001, 0b10001, 0b10001}},
    {'I', {0b01110, 0b00100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110}},
    {'J', {0b00111, 0b00010, 0b00010, 0b00010, 0b00010, 0b10010, 0b01100}},
    {'K', {0b10001, 0b10010, 0b10100, 0b11000, 0b10100, 0b10010, 0b10001}},
    {'L', {0b10000, 0b10000, 0b10000, 0b10000, 0b10000, 0b10000, 0b11111}},
    {'M', {0b10001, 0b11011, 0b10101, 0b10101, 0b10001, 0b10001, 0b10001}},
    {'N', {0b10001, 0b11001, 0b10101, 0b10011, 0b10001, 0b10001, 0b10001}},
    {'O', {0b01110, 0b10001, 0b10001, 0b10001, 0b10001, 0b10001, 0b01110}},
    {'P', {0b11110, 0b10001, 0b10001, 0b11110, 0b10000, 0b10000, 0b10000}},
    {'Q', {0b01110, 0b10001, 0b10001, 0b10001, 0b10101, 0b10010, 0b01101}},
    {'R', {0b11110, 0b10001, 0b10001, 0b11110, 0b10100, 0b10010, 0b10001}},
    {'S', {0b01111, 0b10000, 0b10000, 0b01110, 0b00001, 0b00001, 0b11110}},
    {'T', {0b11111, 0b00100, 0b00100, 0b00100, 0b00100, 0b00100, 0b00100}},
    {'U', {0b10001, 0b10001, 0b10001, 0b10001, 0b10001, 0b10001, 0b01110}},
    {'V', {0b10001, 0b10001, 0b10001, 0b10001, 0b01010, 0b01010, 0b00100}},
    {'W', {0b10001, 0b10001, 0b10001, 0b10101, 0b10101, 0b11011, 0b10001}},
    {'X', {0b10001, 0b10001, 0b01010, 0b00100, 0b01010, 0b10001, 0b10001}},
    {'Y', {0b10001, 0b10001, 0b01010, 0b00100, 0b00100, 0b00100, 0b00100}},
    {'Z', {0b11111, 0b00001, 0b00010, 0b00100, 0b01000, 0b10000, 0b11111}},
    {'.', {0, 0, 0, 0, 0, 0b01100, 0b01100}},
    {'-', {0, 0, 0, 0b11111, 0, 0, 0}},
    {'_', {0, 0, 0, 0, 0, 0, 0b11111}},
    {'/', {0b00001, 0b00001, 0b00010, 0b00100, 0b01000, 0b10000, 0b10000}},
    {'%', {0b11001, 0b11001, 0b00010, 0b00100, 0b01000, 0b10011, 0b10011}},
    {'+', {0, 0b00100, 0b00100, 0b11111, 0b00100, 0b00100, 0}},
    {'&', {0b01100, 0b10010, 0b10100, 0b01000, 0b10101, 0b10010, 0b01101}},
    {'(', {0b00010, 0b00100, 0b01000, 0b01000, 0b01000, 0b00100, 0b00010}},
    {')', {0b01000, 0b00100, 0b00010, 0b00010, 0b00010, 0b00100, 0b01000}},
    {'\'', {0b00100, 0b00100, 0b01000, 0, 0, 0, 0}},
};
constexpr std::array<uint8_t, kLetterHeight> kFrame = {0b11111, 0b10001, 0b10001, 0b10001, 0b10001, 0b10001, 0b11111};

}  // namespace

std::array<uint8_t, kLetterHeight> letter(char character) {
  const auto capital = static_cast<char>(std::toupper(static_cast<unsigned char>(character)));
  for (const Letter& known : kLetters)
    if (known.character == capital) return known.rows;
  return kFrame;
}

}  // namespace octet
