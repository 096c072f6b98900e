// SPDX-License-Identifier: Apache-2.0
// octet's runner in C++17: the functions of octet.h with ownership and exceptions. Header-only; link octet::runtime.
#pragma once

#include <octet/octet.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace octet::runtime {

/// A call that failed, with octet_last_error()'s message.
class Error : public std::runtime_error {
 public:
  explicit Error(octet_status status) : Error(status, octet_last_error()) {}
  Error(octet_status status, const std::string& what) : std::runtime_error(what), status_(status) {}
  octet_status status() const { return status_; }

 private:
  octet_status status_;
};

/// A loaded network. Only one thread at a time may use it.
class Network {
 public:
  /// Loads a network, as octet_load() does.
  explicit Network(const std::string& checkpoint, const std::string& engine = "auto", int max_batch = 1,
                   int threads = 0) {
    octet_network* network = nullptr;
    check(octet_load(checkpoint.c_str(), engine.c_str(), max_batch, threads, &network));
    network_.reset(network);
  }

  /// Returns the network's description.
  const octet_description& describe() const { return *octet_describe(network_.get()); }

  /// Returns a class's name, or "class 7" if the checkpoint has none.
  std::string class_name(size_t index) const {
    const octet_description& about = describe();
    return index < static_cast<size_t>(about.classes) ? about.class_names[index] : "class " + std::to_string(index);
  }

  /// Returns a JPEG, PNG, BMP or WebP file as the network's input, as octet_read_picture() does. octet_picture_note()
  /// then says what users may not expect of it.
  std::vector<uint8_t> read_picture(const std::string& file) const {
    std::vector<uint8_t> pixels(elements(describe().input));
    check(octet_read_picture(network_.get(), file.c_str(), pixels.data()));
    return pixels;
  }

  /// Returns what a network that was quantized with tensors reads, of such tensors: float [batch, channels, height,
  /// width] becomes uint8 [batch, height, width, channels].
  std::vector<uint8_t> codes(const std::vector<float>& inputs) const {
    const octet_tensor& in = describe().input;
    const size_t image = elements(in), channels = static_cast<size_t>(in.channels), pixels = image / channels;
    if (inputs.size() % image != 0)
      throw Error(OCTET_USAGE, "codes: " + std::to_string(inputs.size()) + " values are no whole number of inputs of " +
                                   std::to_string(image));
    std::vector<uint8_t> result(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const size_t channel = i % image / pixels, pixel = i % pixels;
      const float code = std::nearbyint(inputs[i] / in.scale) + static_cast<float>(in.zero_point);
      result[i / image * image + pixel * channels + channel] =
          static_cast<uint8_t>(code > 0 ? std::min(code, 255.0f) : 0);
    }
    return result;
  }

  /// Returns a classifier's logits, [batch, classes]. images: uint8 [batch, height, width, channels].
  std::vector<float> logits(const std::vector<uint8_t>& images) {
    const octet_description& about = describe();
    if (about.outputs != 1 || about.output[0].type != OCTET_FLOAT32)
      throw Error(OCTET_USAGE, "logits: the network does not give one output in float; call run");
    const size_t image = elements(about.input), batch = images.size() / image;
    if (images.size() % image != 0)
      throw Error(OCTET_USAGE, "logits: " + std::to_string(images.size()) + " bytes are no whole number of images of " +
                                   std::to_string(image));
    std::vector<float> result(batch * elements(about.output[0]));
    void* const outputs[] = {result.data()};
    run(images.data(), static_cast<int>(batch), outputs);
    return result;
  }

  /// Returns the boxes in the image of a file, as octet_boxes() does: the highest score first, in the image's pixels.
  std::vector<octet_box> boxes(const std::string& file, float score_threshold = -1) {
    return boxes(octet_picture{file.c_str(), nullptr, 0, 0}, score_threshold);
  }

  /// Returns the boxes in pixels: uint8 [height, width, channels], in colour RGB.
  std::vector<octet_box> boxes(const octet_picture& picture, float score_threshold = -1) {
    const int32_t most = std::max(describe().max_boxes, 1);
    std::vector<octet_box> result(static_cast<size_t>(most));
    int32_t count = 0;
    check(octet_boxes(network_.get(), &picture, score_threshold, result.data(), most, &count));
    result.resize(static_cast<size_t>(count));
    return result;
  }

  struct Mask {
    int32_t height = 0, width = 0;
    std::vector<uint8_t> classes;  ///< [height, width]; 255: the network does not see the pixel
  };

  /// Returns the class of each pixel in the image of a file, as octet_mask() does.
  Mask mask(const std::string& file) { return mask(octet_picture{file.c_str(), nullptr, 0, 0}); }

  /// Returns the classes of pixels: uint8 [height, width, channels], in colour RGB.
  Mask mask(const octet_picture& picture) {
    Mask result;
    check(octet_mask(network_.get(), &picture, nullptr, 0, &result.height, &result.width));
    result.classes.resize(static_cast<size_t>(result.height) * static_cast<size_t>(result.width));
    check(octet_mask(network_.get(), &picture, result.classes.data(), static_cast<int64_t>(result.classes.size()),
                     &result.height, &result.width));
    return result;
  }

  /// Runs a batch into the caller's memory, as octet_run() does.
  void run(const uint8_t* images, int batch, void* const* outputs) {
    check(octet_run(network_.get(), images, batch, outputs));
  }

 private:
  struct Free {
    void operator()(octet_network* network) const { octet_free(network); }
  };
  static void check(octet_status status) {
    if (status != OCTET_OK) throw Error(status);
  }
  static size_t elements(const octet_tensor& tensor) {
    return static_cast<size_t>(tensor.height) * tensor.width * tensor.channels;
  }
  std::unique_ptr<octet_network, Free> network_;
};

/// Sets the folder in which engine cuda keeps the fastest kernels, as octet_keep_kernels() does; "" keeps none.
inline void keep_kernels(const std::string& folder) {
  if (const octet_status status = octet_keep_kernels(folder.c_str()); status != OCTET_OK) throw Error(status);
}

}  // namespace octet::runtime
