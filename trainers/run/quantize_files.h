// SPDX-License-Identifier: Apache-2.0
// All that `octet quantize` and octet::training::quantize() share: options as a user spells them, how images become the
// input, and the files that are written.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/data/image_options.h"
#include "trainers/run/float_file.h"
#include "trainers/run/ptq_search.h"
#include "trainers/run/quantize.h"

namespace octet {

struct QuantizeOptions {
  /// Without what the members below say. Of images, tensors and inputs one is given.
  QuantizeRequest request;
  std::string method = "auto";  ///< or a calibration method
  std::optional<double> percentile;
  std::string repair = "bias", activation = "affine_u8";

  ImageOptions image;  ///< how images become the input

  std::string classes_file;  ///< names of the classes, a line a class; "": the checkpoint has none

  std::string out;                     ///< the checkpoint; "": the network's name and .int8.safetensors, here
  std::string onnx;                    ///< "": no ONNX file is written
  std::optional<std::string> profile;  ///< of the ONNX file; without: onnxruntime
  std::string html, svg;               ///< written by the caller; "": no page, no chart
  bool force = false;                  ///< files that exist are replaced
};

/// Quantizes the network and writes nothing. Throws as quantize() does, and Error(usage) for options that contradict
/// each other and files of the options that exist, before long work. device: auto, cpu or cuda.
Quantized quantize_network(QuantizeOptions& options, const std::string& device);

/// Quantizes the network and writes the checkpoint, whose path is then in options.out, and the ONNX file. Throws as
/// quantize_network() does.
Quantized quantize_files(QuantizeOptions& options, const std::string& device);

/// Opens the network of the options for images prepared as they say, not quantized. boxes: FloatFile::ends has the head
/// of a detector. Throws as quantize_network() does, and Error(usage) where the outputs are not those of the preset's
/// detectors.
FloatFile open_float_file(QuantizeOptions options, bool boxes, const std::string& device);

/// What search_network() found.
struct SearchedNetwork {
  BitSearch found;
  size_t images = 0;                ///< by which plans are judged
  std::optional<Quantized> chosen;  ///< quantize() with the chosen plan; none: no plan is chosen
};

/// Searches the bits of the network's layers by images without labels (search_bits_unlabelled()) and writes nothing.
/// Ranges are options.method's, and only what is chosen is repaired, as quantize() does it. Throws as
/// quantize_network() does, and Error(usage) for the method auto.
SearchedNetwork search_network(QuantizeOptions& options, const BitSearchOptions& search, const std::string& device);

}  // namespace octet
