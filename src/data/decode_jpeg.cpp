// SPDX-License-Identifier: Apache-2.0
#include <csetjmp>
#include <cstdio>
#include <cstring>
// jpeglib.h needs size_t and FILE.
#include <jerror.h>
#include <jpeglib.h>

#include "src/base/error.h"
#include "src/data/decoders.h"

namespace octet {
namespace {

/// Progressive files have about 10 scans; hostile ones have thousands, each a pass over the whole image.
constexpr int kMostScans = 64;

/// EXIF data is in a single APP1 marker of at most 64 KiB.
constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr unsigned kMostMarkerBytes = 0xFFFF;

struct Handler {
  jpeg_error_mgr errors;  // first: libjpeg hands out pointers to it
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto* handler = reinterpret_cast<Handler*>(info->err);
  info->err->format_message(info, handler->message);
  std::longjmp(handler->jump, 1);
}

/// Turns warnings (level -1) into errors: they are about corrupt data, which libjpeg would replace by grey.
void on_message(j_common_ptr info, int level) {
  if (level < 0) on_error(info);
}

void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
  auto* handler = reinterpret_cast<Handler*>(info->err);
  std::snprintf(handler->message, sizeof handler->message, "more than %d scans", kMostScans);
  std::longjmp(handler->jump, 1);
}

class JpegDecoder {
 public:
  explicit JpegDecoder(const EncodedImage& encoded) : encoded_(encoded) {
    info_.err = jpeg_std_error(&handler_.errors);
    handler_.errors.error_exit = on_error;
    handler_.errors.emit_message = on_message;
    handler_.progress.progress_monitor = on_progress;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  ImageHeader header() {
    read_checked_header(/*markers=*/true);
    ImageHeader header{.height = static_cast<int>(info_.image_height), .width = static_cast<int>(info_.image_width)};
    for (const jpeg_marker_struct* marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (!data.starts_with(kExifPrefix)) continue;
      header.orientation = exif_orientation(marker->data, marker->data_length);
      break;
    }
    header.why_cpu = why_cpu();
    return header;
  }

  Image decode(int channels) {
    read_checked_header(/*markers=*/false);
    const bool inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = inks ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    const int samples = inks ? 4 : channels;
    Image image{static_cast<int>(info_.image_height), static_cast<int>(info_.image_width), samples, {}};
    image.pixels.resize(static_cast<size_t>(image.height) * image.width * samples);
    if (!read_pixels(image.pixels.data())) fail();
    if (!inks) return image;
    Image colour = from_inks(image, info_.saw_Adobe_marker != 0);
    return channels == 1 ? to_grey(colour) : colour;
  }

 private:
  /// Returns why a GPU does not decode the file, whose header is read; "" if it does.
  std::string_view why_cpu() const {
    if (info_.progressive_mode) return "progressive";
    if (info_.arith_code) return "arithmetic coding";
    if (info_.num_components == 1) return "grey JPEG";
    if (info_.jpeg_color_space != JCS_YCbCr) return "colours other than YCbCr";
    if (info_.comps_in_scan != info_.num_components) return "several scans";
    const jpeg_component_info *y = info_.comp_info, *cb = y + 1, *cr = y + 2;
    const bool usual = y->h_samp_factor <= 2 && y->v_samp_factor <= 2 && cb->h_samp_factor == 1 &&
                       cb->v_samp_factor == 1 && cr->h_samp_factor == 1 && cr->v_samp_factor == 1;
    if (!usual) return "unusual colour sampling";
    const uint8_t* end = encoded_.data + encoded_.size;
    return end[-2] == 0xFF && end[-1] == JPEG_EOI ? "" : "no end marker at the end";
  }

  [[noreturn]] void fail() const { throw data_error(encoded_.name + ": JPEG: " + handler_.message); }

  void read_checked_header(bool markers) {
    if (!read_header(markers)) fail();
    check_dimensions(encoded_, info_.image_width, info_.image_height);
  }

  bool read_header(bool markers) {
    if (setjmp(handler_.jump)) return false;
    jpeg_create_decompress(&info_);
    info_.progress = &handler_.progress;
    if (markers) jpeg_save_markers(&info_, kExifMarker, kMostMarkerBytes);
    jpeg_mem_src(&info_, encoded_.data, static_cast<unsigned long>(encoded_.size));
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  bool read_pixels(uint8_t* pixels) {
    if (setjmp(handler_.jump)) return false;
    jpeg_start_decompress(&info_);
    const size_t stride = static_cast<size_t>(info_.output_width) * info_.output_components;
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels + info_.output_scanline * stride;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  /// Converts CMYK to RGB. Adobe stores inks inverted (255 is no ink).
  static Image from_inks(const Image& inks, bool inverted) {
    Image colour{inks.height, inks.width, 3, std::vector<uint8_t>(inks.pixels.size() / 4 * 3)};
    for (size_t i = 0; i < inks.pixels.size() / 4; ++i) {
      const uint8_t* cmyk = &inks.pixels[4 * i];
      const auto light = [&](int ink) { return inverted ? cmyk[ink] : 255 - cmyk[ink]; };
      for (int c = 0; c < 3; ++c) colour.pixels[3 * i + c] = static_cast<uint8_t>((light(c) * light(3) + 127) / 255);
    }
    return colour;
  }

  const EncodedImage& encoded_;
  jpeg_decompress_struct info_ = {};
  Handler handler_ = {};
};

}  // namespace

ImageHeader jpeg_header(const EncodedImage& encoded) { return JpegDecoder(encoded).header(); }

Image decode_jpeg(const EncodedImage& encoded, int channels) { return JpegDecoder(encoded).decode(channels); }

}  // namespace octet
