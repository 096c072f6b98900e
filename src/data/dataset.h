// Data sets as uint8 pictures with labels. Checked when opened: magic, sizes, label range, class count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace octet {

/// Interleaved 8-bit pixels [height, width, channels].
struct Image {
  int height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;
};

struct PictureSize {
  int height = 0, width = 0;
  bool operator==(const PictureSize&) const = default;
};

/// Whether a picture is turned as its EXIF data says, as people see it, or its pixels are taken as they are stored.
enum class Orientation { as_stored, exif };

/// What a picture file says before its pixels.
struct PictureHeader {
  int height = 0, width = 0;  ///< as stored
  int orientation = 1;        ///< 1 .. 8, of its EXIF data (CIPA DC-008); 1: upright as stored, or it says nothing
  int bits = 8;               ///< of a sample; 16: PNG, of which the upper 8 are read
};

/// What a data set says about its pictures: one class each, or one for every pixel.
enum class Labels { image, pixels };

/// Of a pixel in a mask whose class nobody says, or that the network is not shown: padding, cutout.
inline constexpr uint8_t kUnlabelled = 255;

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual size_t size() const = 0;
  virtual int channels() const = 0;
  virtual Labels labels() const { return Labels::image; }
  virtual int label(size_t index) const = 0;   ///< 0 .. class_names().size() - 1; of Labels::image
  virtual Image read(size_t index) const = 0;  ///< thread-safe; throws Error(data) naming the file
  /// Of Labels::pixels: read(index)'s size, one channel, classes and kUnlabelled; thread-safe.
  virtual Image mask(size_t index) const;
  virtual const std::vector<std::string>& class_names() const = 0;
  /// Of the file of read(index); none where pictures are no files of their own. Thread-safe; throws Error(data).
  virtual std::optional<PictureHeader> header(size_t index) const { return std::nullopt; }
  virtual Orientation orientation() const { return Orientation::as_stored; }  ///< what read() does with a header's
  /// What the user should know about files that are not read, a sentence each.
  virtual std::vector<std::string> notes() const { return {}; }
  /// The size of every picture; none when pictures differ or would have to be read to know.
  virtual std::optional<PictureSize> common_size() const { return std::nullopt; }
  virtual std::string describe(size_t index) const = 0;  ///< file name or "train-images[17]", for messages
};

/// One split of a data set; the keys of a recipe's data section that say where it is.
struct DatasetSpec {
  std::string format;   ///< fashion_mnist, mnist, cifar10, cifar100, image_folder, synthetic
  std::string path;     ///< folder; image_folder: or a .tar
  std::string split;    ///< "train" or "test"; image_folder: subfolder of path, "" for path itself
  std::string classes;  ///< image_folder: file with one class folder a line, in the order of labels; "": sorted folders
  std::vector<std::string> class_names;  ///< image_folder without that file: of the training set, for the other splits
  int channels = 3;                      ///< image_folder, synthetic: 1 or 3
  Orientation orientation = Orientation::as_stored;  ///< image_folder
  int image_size = 32;                               ///< synthetic
  int synthetic_size = 1024, synthetic_classes = 10;
  Labels labels = Labels::image;  ///< pixels: synthetic only
  uint64_t seed = 0;              ///< synthetic
};

/// Opens and checks. Throws Error(data) naming the file, what is wrong and the cure; Error(usage) for an unknown format
/// or split.
std::unique_ptr<Dataset> open_dataset(const DatasetSpec& spec);

/// One decoded picture from a file (JPEG, PNG, BMP or WebP by content), converted to `channels` (1 or 3): colour to
/// grey by ITU-R BT.601, alpha dropped, 16 bits a sample cut to the upper 8. Corrupt or truncated data is an error.
/// Limits: 64 Mpixel, and as many pixels a byte of data as the format can hold.
Image read_image(const std::string& path, int channels, Orientation orientation = Orientation::as_stored);

/// The same from memory; `name` stands for the path in messages.
Image decode_image(const uint8_t* data, size_t size, int channels, const std::string& name,
                   Orientation orientation = Orientation::as_stored);

/// Of a picture in memory, with the checks of decode_image() that need no pixels.
PictureHeader decode_header(const uint8_t* data, size_t size, const std::string& name);

/// How many of a sample's bits the values of a decoded picture use, counted in steps of the file. Of 16-bit samples
/// below kFewestOf16 means a camera's 10, 12 or 14 bits, nearly black.
int bits_in_use(const PictureHeader& header, const Image& image);
inline constexpr int kFewestOf16 = 15;

/// The bytes of a PNG file, grey or RGB, which read_image() gives back pixel by pixel.
std::string encode_png(const Image& image);

}  // namespace octet
