// Data sets as uint8 pictures with labels. Checked when opened: magic, sizes, label range, class count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace octet {

/// Interleaved 8-bit pixels [height, width, channels].
struct Image {
  int height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual size_t size() const = 0;
  virtual int channels() const = 0;
  virtual int label(size_t index) const = 0;   ///< 0 .. class_names().size() - 1
  virtual Image read(size_t index) const = 0;  ///< thread-safe; throws Error(data) naming the file
  virtual const std::vector<std::string>& class_names() const = 0;
  virtual std::string describe(size_t index) const = 0;  ///< file name or "train-images[17]", for messages
};

/// One decoded picture from a file (JPEG or PNG by content), converted to `channels` (1 or 3). Limits: 64 Mpixel.
Image read_image(const std::string& path, int channels);

/// The same from memory; `name` stands for the path in messages.
Image decode_image(const uint8_t* data, size_t size, int channels, const std::string& name);

}  // namespace octet
