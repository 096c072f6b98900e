// SPDX-License-Identifier: Apache-2.0
// Small images and files for the tests of src/data.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "src/base/error.h"
#include "src/data/dataset.h"

namespace octet::testing {

/// A folder of its own that goes with the test.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string path(const std::string& name = "") const { return (path_ / name).string(); }
  void write(const std::string& name, const std::string& contents) const;  ///< makes folders on the way

 private:
  std::filesystem::path path_;
};

/// Smooth image, so that JPEG keeps it nearly.
Image gradient(int height, int width, int channels);
/// Pseudo-random pixels.
Image noise(int height, int width, int channels, uint64_t seed);

std::string jpeg_bytes(const Image& image, int quality, bool progressive = false);

/// What a JPEG file may be besides.
struct JpegForm {
  bool extended = false;     ///< with the 16-bit divisors that a quality below 25 asks for
  int restarts = 0;          ///< so many blocks of all colours between restart markers; 0: none
  int across = 2, down = 2;  ///< pixels that share a colour
  bool progressive = false;
};
std::string jpeg_of(const Image& image, int quality, const JpegForm& form);
std::string png_bytes(const Image& image);
std::string png_of_16_bits(int height, int width, const std::vector<uint16_t>& pixels);  ///< grey
std::string webp_bytes(const Image& image);                                              ///< RGB, lossless
std::string gzip_bytes(const std::string& data);

/// One member of a tar archive (ustar): header block and padded contents.
std::string tar_member(const std::string& name, const std::string& contents, char type = '0');
inline const std::string kTarEnd(1024, '\0');
/// A tar archive of all files in a folder, each below `top`.
std::string tar_of(const TemporaryFolder& folder, const std::string& top = "");

/// Writes images 0 .. count - 1 as file(size, number) gives them, each with two boxes, of classes a and b, and returns
/// the data set, of format coco and three channels.
DatasetSpec write_boxes(const TemporaryFolder& folder, int count, const std::string& ending,
                        const std::function<ImageSize(int number)>& size_of,
                        const std::function<std::string(const ImageSize& size, int number)>& file);

/// EXIF data as cameras write it: a TIFF structure whose directory has the orientation between two other entries.
std::string exif_bytes(int orientation, bool big_endian);
/// `file`, as the functions above give it, with EXIF data where its format keeps it.
std::string jpeg_with_exif(const std::string& file, const std::string& exif);
std::string png_with_exif(const std::string& file, const std::string& exif, bool behind_pixels = false);
std::string webp_with_exif(const std::string& file, const std::string& exif, const Image& image);

/// What Error(data) of `body` says; fails the test when nothing is thrown.
template <class Body>
std::string data_refusal(Body body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

inline void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
}

}  // namespace octet::testing
