// SPDX-License-Identifier: Apache-2.0
// What happens to one image on its way to a network: resizing, cropping and augmentation. Images stay 8-bit throughout;
// the network's input normalizes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/random.h"
#include "src/data/colours.h"
#include "src/data/dataset.h"
#include "src/net/int8_graph.h"

namespace octet {

struct Int8Graph;
struct Shape;

/// A rectangle of an image's pixels: interleaved [height, width, channels], rows `stride` bytes apart.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int height = 0, width = 0, channels = 0;
  size_t stride = 0;
};

struct Rectangle {
  int top = 0, left = 0, height = 0, width = 0;
};

/// Returns what two rectangles share; its height or width is 0 where that is nothing.
Rectangle shared(const Rectangle& a, const Rectangle& b);

/// Returns the part of `image` inside `rectangle`, which must lie inside the image; or all of it.
ImageView view(const Image& image, const Rectangle& rectangle);
ImageView view(const Image& image);

/// Resizes bilinearly with antialiasing: a triangle filter, stretched by the scale when shrinking; columns first, then
/// rows, rounded to 8 bits after each. Pillow and torchvision define it the same way, so a network sees the pixels that
/// it was trained on. Reads nothing outside the view.
Image resize(const ImageView& input, int height, int width);

/// Weights are fixed point with 22 bits: a sum of 255 * weights that add up to one fits into int32.
inline constexpr int kFilterBits = 22;

/// The pixels and weights that resize() makes a row or column of: for each output position `count` inputs from `first`
/// on, and their weights.
struct ResizeFilter {
  int taps = 0;
  std::vector<int> first, count;
  std::vector<int32_t> weights;  ///< [outputs, taps], of which `count` are used

  size_t outputs() const { return first.size(); }
};

/// Returns the filter of one axis of resize(). With as many outputs as inputs it is the identity. Whatever resizes by
/// it, in fixed point and with columns rounded to 8 bits before rows, gives the bytes of resize().
ResizeFilter triangle_filter(int inputs, int outputs);

/// Resizes to the nearest pixels, whose centres lie where those of resize() do: for masks, since classes have no mean.
Image resize_nearest(const ImageView& input, int height, int width);

struct Transform;
/// Resizes as images of the transform are: resize(), or of masks resize_nearest().
Image resize(const ImageView& input, int height, int width, const Transform& transform);

/// The steps from an image to its place in a batch, in this order.
struct Transform {
  int channels = 3;
  int height = 0, width = 0;  ///< of the batch
  Fit fit = Fit::crop;        ///< with others than crop, training images are placed (src/data/place.h)
  int resize = 0;             ///< shorter side after resize(); 0: no resize. Not with random_resized_crop in training
  /// How the margin before the centre crop, half of what is left over, is rounded: to even, as torchvision's CenterCrop
  /// does, or down, as octet did before version 9 of its checkpoints.
  bool even_margin = false;
  // Training only:
  bool random_resized_crop = false;  ///< a random_part(), resized to height x width
  double crop_area_min = 0.08;       ///< the smallest share of the image's area that random_part() takes
  int pad = 0;                       ///< padding on each side, before a random crop of height x width
  bool flip = false;                 ///< mirrors horizontally with probability 1/2
  int cutout = 0;             ///< side of a square filled with the mean colour (DeVries & Taylor 2017); 0: no cutout
  std::vector<uint8_t> fill;  ///< the mean colour, one value for each channel
  ColourJitter jitter;
  int rand_augment = 0, rand_augment_magnitude = 9;  ///< see src/data/colours.h
  double random_erasing = 0;  ///< the share of images that lose a rectangle (Zhong et al., arXiv 1708.04896)
  double mixup_alpha = 0;     ///< images are mixed with another by weights of Beta(alpha, alpha); 0: not mixed
  uint8_t outside = 0;        ///< value of the padding's pixels
  double scale = 0;           ///< placed images: 1 - scale .. 1 + scale times as large as they fit
  double translate = 0;       ///< placed images: moved by up to this share of the input's height and width
  double degrees = 0;         ///< placed images: rotated by up to so many degrees to either side
  double shear = 0;           ///< placed images: sheared by up to so many degrees along both axes
  bool hsv = false;           ///< placed images: hue, saturation and value change
  double mosaic = 0;          ///< placed images: the share that are mosaics of four
  double mixup = 0;           ///< placed images with boxes: the share that are the mean of two, mosaics or not
  double multi_scale = 0;     ///< placed images: batches of input_sizes(), each of one of them
  // In both:
  ChannelOrder order = ChannelOrder::rgb;
  bool classes = false;  ///< pixels are classes, see mask_transform()

  Rectangle input() const { return {0, 0, height, width}; }
  size_t bytes() const { return static_cast<size_t>(height) * width * channels; }  ///< of the input
  bool turns() const { return degrees > 0 || shear > 0; }
  bool joins() const { return mosaic > 0 || mixup > 0; }  ///< makes images of several
};

/// Returns the sizes that a training batch's input may have, ascending: from 1 - multi_scale to 1 + multi_scale times
/// the transform's height, in steps of the largest power of two that divides both its sides, at most 32; and the width
/// that is in proportion, in such steps. The transform's own size alone if multi_scale is 0.
std::vector<ImageSize> input_sizes(const Transform& transform);

/// Throws Error(usage) for a Transform that makes no sense (sizes, channels, fill).
void check_transform(const Transform& transform);

/// Throws Error(data) if an image of that size cannot go through the transform: too small for the crop, or too long.
void check_size(const ImageSize& image, const Transform& transform, bool training);

/// Returns the size with the shorter side `shorter` and the other in proportion, rounded down, as
/// torchvision.transforms.Resize(shorter) does. Throws Error(data) for a longer side of more than 32768 pixels.
ImageSize resized_size(const ImageSize& image, int shorter);

/// Applies the evaluation transform (fit, order of the channels) to one image and writes it to out, [height, width,
/// channels]. Throws Error(data) if the image has other channels or is smaller than the crop.
void evaluation_pixels(const Image& image, const Transform& transform, uint8_t* out);

/// Returns what evaluation_pixels() writes, and checks the transform.
Image evaluation_image(const Image& image, const Transform& transform);

/// Where evaluation_pixels() puts an image: its point (x, y) comes to (left + scale_x * x, top + scale_y * y) of the
/// network's input, where the upper left corner of the upper left pixel is (0, 0). A crop may begin outside.
struct Placement {
  double scale_y = 1, scale_x = 1, top = 0, left = 0;
};
Placement placement(const ImageSize& image, const Transform& transform);

/// The random choices for one training image.
struct Augmentation {
  Rectangle part;     ///< random_resized_crop: what is resized to height x width. Else the crop, which starts
                      ///< outside the image where it reaches into the padding
  bool flip = false;  ///< after the crop
  Rectangle cut;      ///< the cutout, which may reach over the borders; empty: none
  Rectangle erased;   ///< of random_erasing; empty: nothing
};

/// Draws the augmentation of an image of that size (after the resize, if there is one without random_resized_crop).
/// `random` is called in a fixed order, so batches are the same on every device. Throws Error(data) if the image is
/// smaller than the crop.
Augmentation draw_augmentation(const ImageSize& image, const Transform& transform, Random& random);

/// Applies the training transform to one image and writes it to out, [height, width, channels]: random resized crop, or
/// resize, pad and random crop; then flip; then colours; then cutout and erasing. Or, with another fit than crop, the
/// image placed. Throws as evaluation_pixels() does.
void training_pixels(const Image& image, const Transform& transform, Random& random, uint8_t* out);

/// Returns a random part of the image with a share of its area in area_min .. 1 and an aspect ratio in 3/4 .. 4/3
/// (Szegedy et al. 2014).
Rectangle random_part(const ImageSize& image, double area_min, Random& random);

/// Returns the transform of a mask whose image goes through `transform`: drawn with the same random numbers, its pixels
/// go where the image's go, by resize_nearest(), and become kUnlabelled where the image shows nothing.
Transform mask_transform(const Transform& transform);

/// Returns the evaluation transform for an input of that shape.
Transform evaluation_transform(const Shape& input, const Preprocessing& preprocessing);

/// Throws Error(usage) for a network whose checkpoint does not say how an image becomes its input (Fit::tensor).
void require_images(const Int8Graph& graph);

/// Reads the image in `file` and fits it to the input of a checkpoint's network as its preprocessing says: uint8
/// [height, width, channels], by the functions that validation uses. Appends a sentence to `notes` for each thing that
/// the user may not expect: a crop without a resize, an orientation that is not followed, a 16-bit PNG that is nearly
/// black. Throws as require_images() does, and Error(data), also for an image that is too small, naming both sizes.
Image network_image(const Int8Graph& graph, const std::string& file, std::vector<std::string>& notes);

/// Returns the image of network_image() before it is fitted to the input, turned as the preprocessing says.
Image image_for(const Int8Graph& graph, const std::string& file, std::vector<std::string>& notes);

}  // namespace octet
