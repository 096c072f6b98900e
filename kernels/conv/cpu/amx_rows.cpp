// SPDX-License-Identifier: Apache-2.0
#include "kernels/conv/cpu/amx_rows.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/divide.h"

namespace octet::kernels {
namespace {

constexpr int kMostPanels = 256;         // of one call
constexpr int kCopyBudget = 256 * 1024;  // bytes that one call copies, if that is not less than a panel's
constexpr int kWholePairs = kTilePixels / 2;

}  // namespace

TileRows::TileRows(const Conv2dShape& shape, int x_zero_point)
    : g_(shape), zero_point_(static_cast<uint8_t>(x_zero_point)), channels_(shape.in_c / shape.groups) {
  in_place_ = g_.kernel_h == 1 && g_.kernel_w == 1 && g_.stride_h == 1 && g_.stride_w == 1 && g_.out_h == g_.in_h &&
              g_.out_w == g_.in_w && g_.pad_h == 0 && g_.pad_w == 0;
  pixel_bytes_ = in_place_ || g_.groups == 1 ? g_.in_stride : round_up(channels_, 16);
  for (int i = 0; i < kWholePairs; ++i)
    pairs_.push_back({static_cast<uint16_t>(2 * i * kSumRow), static_cast<uint16_t>(2 * i)});
  choose_planes();
  choose_pitch();
  list_pieces();
  if (!in_place_) list_panels();
}

void TileRows::choose_planes() {
  const bool short_rows = g_.dilation_w == 1 && g_.kernel_w * pixel_bytes_ <= kTileBytes;
  column_planes_ = short_rows ? 1 : g_.stride_w;
  step_ = short_rows ? g_.stride_w : 1;
  // Runs of several taps may take fewer pieces.
  const int whole = ceil_div(g_.kernel_w * pixel_bytes_, kTileBytes);
  const int single = g_.kernel_w * ceil_div(round_up(channels_, 4), kTileBytes);
  const bool together = g_.dilation_w == 1 && column_planes_ == 1 && whole <= single;
  run_columns_ = together ? g_.kernel_w : 1;
  run_bytes_ = together ? g_.kernel_w * pixel_bytes_ : round_up(channels_, 4);
  for (int r = 0; r < g_.kernel_h; ++r) {
    for (int s = 0; s < g_.kernel_w; ++s) {
      const Plane plane = plane_of(r, s);
      if (std::find(planes_.begin(), planes_.end(), plane) == planes_.end()) planes_.push_back(plane);
    }
  }
}

TileRows::Plane TileRows::plane_of(int row, int column) const {
  return {row * g_.dilation_h % g_.stride_h, column * g_.dilation_w % column_planes_};
}

void TileRows::choose_pitch() {
  const int positions = (g_.out_w - 1) * step_ + 1;  // columns from the first position of a row to the last
  std::vector<int> needed(column_planes_, 0);
  for (int s = 0; s < g_.kernel_w; ++s) {
    int& columns = needed[plane_of(0, s).column];
    columns = std::max(columns, positions + s * g_.dilation_w / column_planes_);
  }
  pitch_ = positions;
  for (int plane = 0; plane < column_planes_; ++plane) {
    const int left = std::max(0, ceil_div(g_.pad_w - plane, column_planes_));
    const int right = std::max(0, needed[plane] - std::max(0, ceil_div(g_.pad_w + g_.in_w - plane, column_planes_)));
    pitch_ = std::max(pitch_, needed[plane] - std::min(left, right));
  }
  pitch_ = round_up(pitch_, step_);
  for (const int columns : needed) shared_ = std::max(shared_, columns - pitch_);
  below_ = (g_.kernel_h - 1) * g_.dilation_h / g_.stride_h;

  const int panel_bytes = kTilePixels * bytes_per_row() * static_cast<int>(planes_.size());
  most_panels_ = in_place_ ? kMostPanels : std::clamp(kCopyBudget / panel_bytes, 1, kMostPanels);
  plane_bytes_ = (static_cast<size_t>(segment_rows()) * pitch_ + shared_) * pixel_bytes_;
}

void TileRows::list_pieces() {
  const int count = ceil_div(run_bytes_, kTileBytes);
  piece_bytes_ = round_up(ceil_div(run_bytes_, count), 4);
  for (int r = 0; r < g_.kernel_h; ++r) {
    for (int s = 0; s < g_.kernel_w; s += run_columns_) {
      const auto plane = std::find(planes_.begin(), planes_.end(), plane_of(r, s)) - planes_.begin();
      const int row = r * g_.dilation_h / g_.stride_h, column = s * g_.dilation_w / column_planes_;
      const size_t at = plane * plane_bytes_ + static_cast<size_t>(row * pitch_ + column) * pixel_bytes_;
      for (int i = 0; i < count; ++i)
        pieces_.push_back({static_cast<int32_t>(at + i * piece_bytes_), r, s, i * piece_bytes_});
    }
  }
}

int TileRows::weight_of(const Piece& piece, int i) const {
  const int byte = piece.first + i, column = byte / pixel_bytes_, channel = byte % pixel_bytes_;
  if (column >= run_columns_ || channel >= channels_) return -1;
  return (piece.row * g_.kernel_w + piece.column + column) * channels_ + channel;
}

void TileRows::list_panels() {
  const int pitch = pitch_ / step_, positions = (g_.out_h - 1) * pitch + g_.out_w;
  for (int first = 0; first < positions; first += kTilePixels) {
    ImagePanel panel;
    panel.pairs = static_cast<int>(pairs_.size());
    panel.first_pixel = first / pitch * g_.out_w + std::min(first % pitch, g_.out_w);
    std::vector<TilePair> singles;
    for (int position = first; position < std::min(first + kTilePixels, positions);) {
      const int oy = position / pitch, ox = position % pitch;
      const int pixels = std::min(g_.out_w - ox, first + kTilePixels - position);
      if (pixels > 0) add_run(position - first, oy * g_.out_w + ox - panel.first_pixel, pixels, panel, singles);
      position += pixels > 0 ? pixels : pitch - ox;
    }
    panel.singles = static_cast<int>(pairs_.size());
    panel.single_count = static_cast<int>(singles.size());
    pairs_.insert(pairs_.end(), singles.begin(), singles.end());
    panels_.push_back(panel);
  }
}

void TileRows::add_run(int first_row, int first_pixel, int pixels, ImagePanel& panel, std::vector<TilePair>& singles) {
  const auto at = [&](int i) {
    return TilePair{static_cast<uint16_t>((first_row + i) * kSumRow), static_cast<uint16_t>(first_pixel + i)};
  };
  if (pixels == 1) singles.push_back(at(0));
  for (int i = 0; pixels > 1 && i < pixels; i += 2, ++panel.pair_count) pairs_.push_back(at(std::min(i, pixels - 2)));
}

int TileRows::panels(int images) const {
  return in_place_ ? ceil_div(images * g_.out_h * g_.out_w, kTilePixels) : images * static_cast<int>(panels_.size());
}

int TileRows::panel_rows(int images) const {
  return in_place_ ? std::min(images * g_.out_h * g_.out_w, kTilePixels) : kTilePixels;
}

int TileRows::segment_rows() const {
  const int pitch = pitch_ / step_;
  return std::min(g_.out_h, (most_panels_ * kTilePixels - 2) / pitch + 2) + below_;
}

size_t TileRows::workspace_bytes() const {
  if (in_place_) return 0;
  const size_t segments = most_panels_ / panels_.size() + 2;
  return segments * planes_.size() * plane_bytes_ + static_cast<size_t>(kTilePixels) * bytes_per_row() + kTileBytes;
}

void TileRows::make_panels(const uint8_t* x, int images, int first, int count, uint8_t* copies,
                           TilePair (&end_pairs)[kTileEndPairs], TilePanel* panels) const {
  if (in_place_) {
    const int pixels = images * g_.out_h * g_.out_w;
    for (int i = 0; i < count; ++i) {
      const int pixel = (first + i) * kTilePixels;
      panels[i] = {x + static_cast<ptrdiff_t>(pixel) * pixel_bytes_, pixel, pairs_.data(), kWholePairs, nullptr, 0};
    }
    const int last = (first + count) * kTilePixels - pixels;  // rows of the last panel that are behind the end
    if (last <= 0) return;
    // The panel's rows end with the last pixel, so that only pixels are read.
    TilePanel& panel = panels[count - 1];
    const int left = kTilePixels - last, skip = panel_rows(images) - left;
    panel.a -= static_cast<ptrdiff_t>(skip) * pixel_bytes_;
    const auto at = [&](int i) {
      return TilePair{static_cast<uint16_t>((skip + i) * kSumRow), static_cast<uint16_t>(i)};
    };
    panel.pairs = end_pairs;
    panel.pair_count = left / 2;
    for (int i = 0; i < panel.pair_count; ++i) end_pairs[i] = at(2 * i);
    panel.singles = end_pairs + panel.pair_count;
    panel.single_count = left % 2;
    if (left % 2 != 0) end_pairs[panel.pair_count] = at(left - 1);
    return;
  }
  const int an_image = static_cast<int>(panels_.size()), pitch = pitch_ / step_;
  const int positions = (g_.out_h - 1) * pitch + g_.out_w;
  for (int done = 0; done < count;) {
    const int image = (first + done) / an_image, panel = (first + done) % an_image;
    const int end = std::min(an_image, panel + count - done);
    const int row = panel * kTilePixels / pitch, last_row = (std::min(end * kTilePixels, positions) - 1) / pitch;
    copy(x + static_cast<ptrdiff_t>(image) * g_.in_h * g_.in_w * g_.in_stride, row, last_row - row + 1 + below_,
         copies);
    for (int p = panel; p < end; ++p, ++done) {
      const ImagePanel& from = panels_[p];
      panels[done] = {copies + static_cast<ptrdiff_t>(p * kTilePixels - row * pitch) * bytes_per_row(),
                      static_cast<ptrdiff_t>(image) * g_.out_h * g_.out_w + from.first_pixel,
                      pairs_.data() + from.pairs,
                      from.pair_count,
                      pairs_.data() + from.singles,
                      from.single_count};
    }
    copies += planes_.size() * plane_bytes_;
  }
}

void TileRows::copy(const uint8_t* image, int first_row, int rows, uint8_t* to) const {
  const ptrdiff_t line = static_cast<ptrdiff_t>(g_.in_w) * g_.in_stride;
  for (size_t p = 0; p < planes_.size(); ++p) {
    uint8_t* y = to + p * plane_bytes_;
    for (int row = first_row; row < first_row + rows; ++row, y += static_cast<ptrdiff_t>(pitch_) * pixel_bytes_) {
      const int iy = row * g_.stride_h + planes_[p].row - g_.pad_h;
      if (iy >= 0 && iy < g_.in_h) {
        copy_row(image + iy * line, planes_[p].column, y);
      } else {
        std::memset(y, zero_point_, static_cast<size_t>(pitch_) * pixel_bytes_);
      }
    }
    std::memset(y, zero_point_, static_cast<size_t>(shared_) * pixel_bytes_);
  }
}

void TileRows::copy_row(const uint8_t* from, int column, uint8_t* to) const {
  const int first = std::clamp(ceil_div(g_.pad_w - column, column_planes_), 0, pitch_);
  const int last = std::clamp(ceil_div(g_.pad_w + g_.in_w - column, column_planes_), first, pitch_);
  std::memset(to, zero_point_, static_cast<size_t>(first) * pixel_bytes_);
  uint8_t* y = to + static_cast<ptrdiff_t>(first) * pixel_bytes_;
  const uint8_t* x = from + static_cast<ptrdiff_t>(first * column_planes_ + column - g_.pad_w) * g_.in_stride;
  if (column_planes_ == 1 && g_.in_stride == pixel_bytes_) {
    std::memcpy(y, x, static_cast<size_t>(last - first) * pixel_bytes_);
  } else {
    const ptrdiff_t distance = static_cast<ptrdiff_t>(column_planes_) * g_.in_stride;
    const int bytes = pixel_bytes_;
    for (int i = first; i < last; ++i, x += distance, y += bytes) {
      for (int b = 0; b < bytes; b += 16) std::memcpy(y + b, x + b, 16);  // strides are multiples of 16 here
    }
  }
  std::memset(to + static_cast<ptrdiff_t>(last) * pixel_bytes_, zero_point_,
              static_cast<size_t>(pitch_ - last) * pixel_bytes_);
}

}  // namespace octet::kernels
