// SPDX-License-Identifier: Apache-2.0
// Images that lie in the network's input as a whole (letterbox, stretch), in evaluation and, with random changes, in
// training; rotation and shear of such an image, and of the boxes in it; training images that are made of several.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/training/batches.h"
#include "src/base/random.h"
#include "src/data/dataset.h"
#include "src/data/transform.h"

namespace octet {

struct Point {
  double x = 0, y = 0;
};

/// Corners in order, of a convex shape.
using Polygon = std::vector<Point>;

/// A linear map of the input's plane that leaves one point where it is.
struct Turn {
  double xx = 1, xy = 0, yx = 0, yy = 1;  ///< a point (x, y) from the centre comes to (xx x + xy y, yx x + yy y)
  Point centre;

  bool none() const { return xx == 1 && xy == 0 && yx == 0 && yy == 1; }
  double area() const { return xx * yy - xy * yx; }  ///< of what had the area 1
  Point operator()(const Point& point) const;
  Turn inverse() const;
  kernels::PlaneTurn plane() const { return {xx, xy, yx, yy, centre.x, centre.y}; }
};

/// Draws a rotation by up to `degrees`, clockwise or not, and a shear of x and of y by up to `shear` degrees each,
/// which is less than 45.
Turn draw_turn(double degrees, double shear, const Point& centre, Random& random);

/// Returns the four corners of a box, turned.
Polygon turned(const Box& box, const Turn& turn);

/// Returns what of a polygon lies in 0 .. width, 0 .. height.
Polygon cut_to(Polygon polygon, double width, double height);

double area(const Polygon& polygon);

/// Returns the smallest box around a polygon; an empty box around none.
Box around(const Polygon& polygon);

/// Exchanges left and right of interleaved pixels [height, width, channels] of 1 or 3 channels.
void mirror(uint8_t* pixels, int height, int width, int channels);

/// Exchanges red and blue of RGB pixels [height, width, 3].
void exchange_red_and_blue(uint8_t* pixels, int height, int width);

/// Returns where an image of that size lies in the input by transform.fit, which is letterbox, letterbox_corner or
/// stretch. YOLOX rounds the sides of letterboxed images down and has them in the corner; Ultralytics' networks round
/// to the nearest and have them in the middle.
Rectangle fitted(const ImageSize& image, const Transform& transform);

/// The random choices for a training image that is placed in the input as a whole (Fit::letterbox and the like).
struct Placed {
  Rectangle part;     ///< of the input: where the image comes to lie. It may reach outside, which is cut off
  Rectangle visible;  ///< of the input: what is not cut off; within the input unless it is turned
  Turn turn;          ///< of the input, after all else; what it turns out of the input is cut off
  bool flip = false;  ///< the image is mirrored where it lies
  kernels::ColourChange colours;  ///< what change_colours() adds
};
Placed draw_placed(const ImageSize& image, const Transform& transform, Random& random);

/// Returns the random choices for a mosaic (Bochkovskiy et al., YOLOv4, arXiv 2004.10934), as YOLOX makes it: four
/// images, each as large as it fits the input, meet in a point of a ground with twice the input's height and width,
/// where they are cut off; the input shows the ground's upper left corner, scaled, moved and turned around the input's
/// middle. Flip, turn and colours are one choice for all.
std::array<Placed, 4> draw_mosaic(const std::array<ImageSize, 4>& images, const Transform& transform, Random& random);

/// Returns where a box of an image of that size lies in the input, cut off where the image is; of a turned one the box
/// around what is left. An empty box if less than a pixel of one side or a tenth of the area is left.
Box placed_box(const Box& box, const ImageSize& image, const Transform& transform, const Placed& placed);

/// Which pixels of the input show an image that is placed, and what of it.
struct Shown {
  Rectangle seen;     ///< of the input before it is turned: what of `part` is not cut off. Empty: nothing is
  Rectangle reached;  ///< of the input: outside of it nothing of the image is shown; `seen` of one that is not turned
  Turn back;          ///< from the input to where it was before it was turned
};
Shown shown(const Placed& placed, const Transform& transform);

/// Adds to hue, saturation and value of all pixels, as kernels::change_colour() does.
void change_colours(Image& image, const kernels::ColourChange& by);

/// Writes the images, each resized to its part and turned, to out, [height, width, channels] of the transform; the rest
/// is kLetterboxGrey, of a mask kUnlabelled. Channels stay as the images have them.
void place(std::span<const Image> images, const Transform& transform, std::span<const Placed> placed, uint8_t* out);

/// An image in a training image.
struct Tile {
  size_t index = 0;  ///< into the data set
  ImageSize size;
  Placed placed;
};

struct Composition {
  std::vector<Tile> tiles;  ///< later ones cover earlier ones
  size_t mixed = 0;         ///< from here on they are those of the image that it is mixed with; tiles.size(): it is not
};

/// Where the images of a composition are from.
struct ImageSource {
  const std::vector<size_t>& others;  ///< of which those that a mosaic or mixup adds are drawn
  /// Returns the size of an image; called once for each tile, in their order.
  std::function<ImageSize(size_t index)> size_of;
};

/// Draws the composition of a training image that begins with image `index`. join: mosaics and mixed images are made,
/// if the transform says so; without, it has one tile, drawn as training_pixels() draws it.
Composition compose(size_t index, const Transform& transform, bool join, const ImageSource& source, Random& random);

/// Writes what `images`, those of the tiles, show to out, [height, width, channels] of the transform.
void write_composition(std::span<const Image> images, const Composition& composition, const Transform& transform,
                       uint8_t* out);

}  // namespace octet
