// SPDX-License-Identifier: Apache-2.0
// The rows of AMX's matrix product: where the codes under an output pixel are found.
//
// A tile register loads 16 rows that lie at equal distances. So output pixels are numbered as they follow each other in
// a copy of the image with padding: pixel (oy, ox) is position oy * pitch + ox, and the codes of each tap lie at the
// position's place plus an offset of the tap. Positions behind an image row's last pixel are computed in vain; padding
// on the right is the next row's padding on the left, so that a 3x3 convolution has one such position a row.
// With strides, the copy consists of planes: each holds the rows and columns of one remainder. If a window row is short
// (a first layer), columns stay in their order instead, and positions are stride_w columns apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "kernels/conv/cpu/amx.h"

namespace octet::kernels {

inline constexpr int kTileEndPairs = kTilePixels / 2 + 1;

class TileRows {
 public:
  /// Neighbouring bytes of k that one tile register loads.
  struct Piece {
    int32_t at = 0;  ///< bytes from a position's place to the piece
    int row = 0;     ///< of the window
    int column = 0;  ///< of the window, where its run of bytes begins
    int first = 0;   ///< byte of the run
  };

  TileRows(const Conv2dShape& shape, int x_zero_point);

  bool in_place() const { return in_place_; }  ///< whether rows are the pixels of x
  const std::vector<Piece>& pieces() const { return pieces_; }
  int piece_bytes() const { return piece_bytes_; }
  int bytes_per_row() const { return step_ * pixel_bytes_; }
  /// Returns the index in [R][S][C] of the weight for byte i of a piece, or -1 for none.
  int weight_of(const Piece& piece, int i) const;

  int panels(int images) const;                     ///< of a batch
  int panel_rows(int images) const;                 ///< rows of each panel
  int most_panels() const { return most_panels_; }  ///< of one call of make_panels()
  size_t workspace_bytes() const;
  /// Describes panels [first, first + count) of a batch, having copied what they need. x: the batch at the first
  /// channel wanted; copies: the workspace; end_pairs: room for the last panel's.
  void make_panels(const uint8_t* x, int images, int first, int count, uint8_t* copies,
                   TilePair (&end_pairs)[kTileEndPairs], TilePanel* panels) const;

 private:
  /// A panel of an image: its pixels.
  struct ImagePanel {
    int first_pixel = 0;
    int pairs = 0, pair_count = 0, singles = 0, single_count = 0;  ///< in pairs_
  };
  struct Plane {
    int row = 0, column = 0;  ///< remainders
    bool operator==(const Plane&) const = default;
  };

  void choose_planes();
  void choose_pitch();
  void list_pieces();
  void list_panels();
  void add_run(int first_row, int first_pixel, int pixels, ImagePanel& panel, std::vector<TilePair>& singles);
  Plane plane_of(int row, int column) const;
  int segment_rows() const;  ///< of a plane, the most that panels of one image need in one call
  void copy(const uint8_t* image, int first_row, int rows, uint8_t* to) const;
  void copy_row(const uint8_t* from, int column, uint8_t* to) const;

  Conv2dShape g_;
  uint8_t zero_point_;
  bool in_place_ = false;
  int channels_ = 0;     // input channels of a group
  int pixel_bytes_ = 0;  // of a pixel in x or in the copy
  int column_planes_ = 1, step_ = 1;
  int run_columns_ = 1, run_bytes_ = 0;  // taps whose codes are neighbours
  int piece_bytes_ = 0;
  int pitch_ = 0;   // columns of a plane
  int shared_ = 0;  // columns of padding that a plane's row has from the next
  int below_ = 0;   // rows of a plane below an output row's that its window reaches
  int most_panels_ = 0;
  size_t plane_bytes_ = 0;
  std::vector<Plane> planes_;
  std::vector<Piece> pieces_;
  std::vector<ImagePanel> panels_;
  std::vector<TilePair> pairs_;
};

}  // namespace octet::kernels
