// SPDX-License-Identifier: Apache-2.0
// Data sets as uint8 images with labels (classes, masks or boxes). They are checked when opened: magic numbers, sizes,
// label range, class count.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/names.h"

namespace octet {

/// Interleaved 8-bit pixels [height, width, channels].
struct Image {
  int height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;
};

struct ImageSize {
  int height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};

/// Whether an image is turned upright as its EXIF data says, or its pixels are taken as they are stored.
enum class Orientation { as_stored, exif };
inline constexpr std::array<Named<Orientation>, 2> kOrientations = {
    {{Orientation::exif, "exif"}, {Orientation::as_stored, "as_stored"}}};

/// What an image file says about its pixels.
struct ImageHeader {
  int height = 0, width = 0;  ///< as stored
  int orientation = 1;        ///< 1 .. 8, from its EXIF data (CIPA DC-008); 1: upright as stored, or not given
  int bits = 8;               ///< of a sample; 16 in a PNG, of which the upper 8 are read
  /// Why a GPU does not decode the file: "progressive" and the like; "": a JPEG that it decodes, see jpeg_header().
  std::string_view why_cpu = "no JPEG";
};

/// What has a class: each image of a data set (classification), each of its pixels (segmentation), or boxes in it
/// (detection).
enum class Labels { image, pixels, boxes };
inline constexpr std::array<Named<Labels>, 3> kLabels = {
    {{Labels::image, "image"}, {Labels::pixels, "pixels"}, {Labels::boxes, "boxes"}}};

/// The value in a mask of a pixel whose class is unknown, or that the network is not shown (padding, cutout).
inline constexpr uint8_t kUnlabelled = 255;

/// A box in an image, in its pixels; (0, 0) is the upper left corner of the upper left one.
struct Box {
  double x = 0, y = 0;  ///< the upper left corner
  double width = 0, height = 0;
  double area() const { return width * height; }
  bool operator==(const Box&) const = default;
};

/// Returns the area that two boxes share.
inline double intersection(const Box& a, const Box& b) {
  const double width = std::min(a.x + a.width, b.x + b.width) - std::max(a.x, b.x);
  const double height = std::min(a.y + a.height, b.y + b.height) - std::max(a.y, b.y);
  return width > 0 && height > 0 ? width * height : 0;
}

/// Returns intersection over union, 0 where nothing is shared.
inline double intersection_over_union(const Box& a, const Box& b) {
  const double shared = intersection(a, b);
  return shared > 0 ? shared / (a.area() + b.area() - shared) : 0;
}

/// What annotations say is in an image.
struct BoxLabel {
  Box box;
  int class_index = 0;
  double area = 0;     ///< of the object, by which COCO tells small from large: of its outline where there is one
  bool crowd = false;  ///< several objects that have no boxes of their own
};

/// What a detector found.
struct Detection {
  Box box;
  int class_index = 0;
  double score = 0;  ///< 0..1
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual size_t size() const = 0;
  virtual int channels() const = 0;
  virtual Labels labels() const { return Labels::image; }
  virtual int label(size_t index) const = 0;   ///< 0 .. class_names().size() - 1, with Labels::image
  virtual Image read(size_t index) const = 0;  ///< thread-safe; throws Error(data) naming the file
  /// Returns the bytes of the image's file; nullopt where images are no files. Thread-safe; throws Error(data).
  virtual std::optional<std::string> file(size_t index) const { return std::nullopt; }
  /// Throws Error(data), as read() does, if an image of that size cannot be the one that annotations are of.
  virtual void require_size(size_t index, const ImageSize& size) const {}
  /// Returns the class, or kUnlabelled, of each pixel of read(index): one channel. With Labels::pixels; thread-safe.
  virtual Image mask(size_t index) const;
  /// Returns what is in read(index), in its pixels. With Labels::boxes; thread-safe.
  virtual const std::vector<BoxLabel>& boxes(size_t index) const;
  virtual const std::vector<std::string>& class_names() const = 0;
  /// Returns the header of the image's file; nullopt where images are no files. Thread-safe; throws Error(data).
  virtual std::optional<ImageHeader> header(size_t index) const { return std::nullopt; }
  virtual Orientation orientation() const { return Orientation::as_stored; }  ///< whether read() turns images
  /// Returns what the user should know about files that are not read, a sentence each.
  virtual std::vector<std::string> notes() const { return {}; }
  /// Returns the size of every image; nullopt if images differ, or would have to be read to know.
  virtual std::optional<ImageSize> common_size() const { return std::nullopt; }
  virtual std::string describe(size_t index) const = 0;  ///< a file name or "train-images[17]", for messages
};

/// One split of a data set, as the keys of a recipe's data section say where it is.
struct DatasetSpec {
  std::string format;   ///< fashion_mnist, mnist, cifar10, cifar100, image_folder, coco, voc, yolo, synthetic
  std::string path;     ///< folder; for image_folder, coco, voc and yolo also a .tar
  std::string split;    ///< "train" or "test"; for image_folder a subfolder of path, "" for path itself; coco: any name
  std::string classes;  ///< image_folder, coco: a file with one class on each line, in label order; "": sorted folders,
                        ///< the categories by id
  std::vector<std::string> class_names;  ///< names of the classes without that file; another split gets training's
  int channels = 3;                      ///< image_folder, coco, synthetic: 1 or 3
  Orientation orientation = Orientation::as_stored;  ///< image_folder, coco
  int image_size = 32;                               ///< synthetic
  int synthetic_size = 1024, synthetic_classes = 10;
  Labels labels = Labels::image;   ///< pixels: image_folder and synthetic; boxes: coco, voc and yolo
  int ignore_index = kUnlabelled;  ///< image_folder's masks: the number of pixels that have no class
  bool leave_out_faults = false;   ///< boxes: images without a file and boxes without a class are left out
  uint64_t seed = 0;               ///< synthetic
};

/// Whether data of a format has boxes.
inline bool has_boxes(std::string_view format) { return format == "coco" || format == "voc" || format == "yolo"; }

/// Opens and checks a data set. Throws Error(data) naming the file, what is wrong and the cure; Error(usage) for an
/// unknown format or split.
std::unique_ptr<Dataset> open_dataset(const DatasetSpec& spec);

/// Decodes an image file in memory (JPEG, PNG, BMP or WebP, told by its content) to `channels` (1 or 3): colour becomes
/// grey by ITU-R BT.601, alpha is dropped, 16-bit samples are cut to the upper 8 bits. Throws Error(data) that begins
/// with `name` for corrupt or truncated data, for more than 64 Mpixel, and for more pixels than the format can hold in
/// so many bytes.
Image decode_image(std::string_view bytes, int channels, const std::string& name,
                   Orientation orientation = Orientation::as_stored);

/// Decodes a PNG whose pixels are numbers, as masks have them: the places in its palette, or the samples of a grey one,
/// of up to 8 bits. Throws as decode_image() does, and for a PNG of colours.
Image decode_numbers(std::string_view bytes, const std::string& name);

/// Returns the header of an image in memory, with the checks of decode_image() that need no pixels.
ImageHeader decode_header(std::string_view bytes, const std::string& name);

/// Returns how many bits of a file's samples the values of a decoded image use. For 16-bit samples, less than
/// kFewestOf16 means a camera's 10, 12 or 14 bits, which are nearly black.
int bits_in_use(const ImageHeader& header, const Image& image);
inline constexpr int kFewestOf16 = 15;

/// Returns the bytes of a PNG file, grey or RGB, which decode_image() decodes to the same pixels.
std::string encode_png(const Image& image);

/// How many images there are, and how many of them train, calibrate, validate and test.
struct SplitOptions {
  size_t train_images = 0, test_images = 0;  ///< sizes of the data sets
  size_t validation_images = 0;              ///< size of a separate data set; 0: validation is cut from training
  double validation_fraction = 0;            ///< the share of the training set that is cut
  size_t limit_train = 0, limit_validation = 0, limit_test = 0;  ///< 0: all
  size_t calibration_images = 0;                                 ///< of the training images; all if there are fewer
  uint64_t seed = 0;
};

/// Ascending indices into the data sets.
struct Split {
  std::vector<size_t> train, calibration, validation, test;
};

/// Chooses the four lists by seed. Throws Error(data) if training, validation or test would be empty.
Split split_indices(const SplitOptions& options);

}  // namespace octet
