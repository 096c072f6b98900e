// A gathered row costs a copy of R * S * C bytes, used once for every output channel. Neighbouring taps of a window row
// usually touch in memory (no dilation, no padding lanes), and are then copied together.
#include "kernels/conv2d_int8/cpu/im2row.h"

#include <algorithm>
#include <cstring>

namespace octet::kernels {

Im2Row::Im2Row(const Conv2dShape& shape, int x_zero_point, int tap_bytes, const GemmKernels& kernels)
    : g_(shape),
      x_zero_point_(x_zero_point),
      tap_bytes_(tap_bytes),
      wide_(kernels.activation_bytes == 2),
      gather_run_(kernels.gather) {
  for (int oy = 0; oy < g_.out_h; ++oy) {
    rows_.push_back(inside(oy * g_.stride_h - g_.pad_h, g_.kernel_h, g_.dilation_h, g_.in_h));
  }
  for (int ox = 0; ox < g_.out_w; ++ox) {
    columns_.push_back(inside(ox * g_.stride_w - g_.pad_w, g_.kernel_w, g_.dilation_w, g_.in_w));
  }
  auto whole = [&](int ox) { return columns_[ox].last - columns_[ox].first == g_.kernel_w; };
  while (inner_first_ < g_.out_w && !whole(inner_first_)) ++inner_first_;
  inner_last_ = inner_first_;
  while (inner_last_ < g_.out_w && whole(inner_last_)) ++inner_last_;
}

Im2Row::Span Im2Row::inside(int position, int kernel, int dilation, int size) {
  Span span;
  while (span.first < kernel && position + span.first * dilation < 0) ++span.first;
  span.last = span.first;
  while (span.last < kernel && position + span.last * dilation < size) ++span.last;
  return span;
}

void Im2Row::gather(const uint8_t* x, int first_row, int rows, uint8_t* to, ptrdiff_t row_bytes) const {
  const ptrdiff_t image_bytes = static_cast<ptrdiff_t>(g_.in_h) * g_.in_w * g_.in_stride;
  const int per_image = g_.out_h * g_.out_w;
  const uint8_t* image = x + first_row / per_image * image_bytes;
  int oy = first_row % per_image / g_.out_w, ox = first_row % g_.out_w;
  for (int row = 0; row < rows;) {
    int pixels = 1;
    if (gather_run_ != nullptr && ox >= inner_first_ && ox < inner_last_) {
      pixels = std::min(rows - row, inner_last_ - ox);
      gather_inner(image, oy, ox, pixels, to, row_bytes);
    } else {
      gather_pixel(image, oy, ox, to);
    }
    row += pixels;
    to += pixels * row_bytes;
    ox += pixels;
    if (ox == g_.out_w) {
      ox = 0;
      if (++oy == g_.out_h) {
        oy = 0;
        image += image_bytes;
      }
    }
  }
}

void Im2Row::gather_inner(const uint8_t* image, int oy, int ox, int pixels, uint8_t* to, ptrdiff_t row_bytes) const {
  const Span rows = rows_[oy];
  const ptrdiff_t line = static_cast<ptrdiff_t>(g_.in_w) * g_.in_stride;
  const bool together = g_.dilation_w == 1 && g_.in_stride == tap_bytes_;
  GatherRun run;
  run.from = image + (oy * g_.stride_h - g_.pad_h + rows.first * g_.dilation_h) * line +
             static_cast<ptrdiff_t>(ox * g_.stride_w - g_.pad_w) * g_.in_stride;
  run.pixel_step = static_cast<ptrdiff_t>(g_.stride_w) * g_.in_stride;
  run.row_step = g_.dilation_h * line;
  run.segment_step = static_cast<ptrdiff_t>(g_.dilation_w) * g_.in_stride;
  run.rows = rows.last - rows.first;
  run.segments = together ? 1 : g_.kernel_w;
  run.segment_bytes = together ? g_.kernel_w * tap_bytes_ : tap_bytes_;
  run.to_step = row_bytes;
  if (run.rows == g_.kernel_h) {
    run.pixels = pixels;
    run.to = to;
    gather_run_(run);
    return;
  }
  run.pixels = 1;  // windows over the top or bottom border: padding before and after each pixel's rows
  for (int pixel = 0; pixel < pixels; ++pixel, to += row_bytes, run.from += run.pixel_step) {
    run.to = fill(to, rows.first * g_.kernel_w);
    gather_run_(run);
    fill(run.to + run.rows * g_.kernel_w * tap_bytes_, (g_.kernel_h - rows.last) * g_.kernel_w);
  }
}

void Im2Row::gather_pixel(const uint8_t* image, int oy, int ox, uint8_t* to) const {
  const Span rows = rows_[oy], columns = columns_[ox];
  const int iy = oy * g_.stride_h - g_.pad_h, ix = ox * g_.stride_w - g_.pad_w;
  const ptrdiff_t tap_step = static_cast<ptrdiff_t>(g_.dilation_w) * g_.in_stride;
  const ptrdiff_t row_step = static_cast<ptrdiff_t>(g_.dilation_h) * g_.in_w * g_.in_stride;
  const uint8_t* from = image + (static_cast<ptrdiff_t>(iy) * g_.in_w + ix) * g_.in_stride + rows.first * row_step +
                        columns.first * tap_step;
  const bool together = tap_step == tap_bytes_;
  to = fill(to, rows.first * g_.kernel_w);
  for (int r = rows.first; r < rows.last; ++r, from += row_step) {
    to = fill(to, columns.first);
    if (together) {
      to = copy(to, from, (columns.last - columns.first) * tap_bytes_);
    } else {
      for (int s = 0; s < columns.last - columns.first; ++s) to = copy(to, from + s * tap_step, tap_bytes_);
    }
    to = fill(to, g_.kernel_w - columns.last);
  }
  fill(to, (g_.kernel_h - rows.last) * g_.kernel_w);
}

uint8_t* Im2Row::fill(uint8_t* to, int taps) const {
  if (taps == 0) return to;
  const int codes = taps * tap_bytes_;
  if (!wide_) {
    std::memset(to, x_zero_point_, codes);
    return to + codes;
  }
  const int16_t code = static_cast<int16_t>(x_zero_point_);
  for (int i = 0; i < codes; ++i) std::memcpy(to + 2 * i, &code, 2);
  return to + 2 * codes;
}

uint8_t* Im2Row::copy(uint8_t* to, const uint8_t* from, int codes) const {
  if (!wide_) {
    for (int i = 0; i < codes; i += 16) std::memcpy(to + i, from + i, 16);
    return to + codes;
  }
  for (int i = 0; i < codes; i += 16) {
    int16_t codes16[16];
    for (int j = 0; j < 16; ++j) codes16[j] = from[i + j];
    std::memcpy(to + 2 * i, codes16, sizeof(codes16));
  }
  return to + 2 * codes;
}

}  // namespace octet::kernels
