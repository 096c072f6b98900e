// SPDX-License-Identifier: Apache-2.0
// What `octet run` shows of a detector: boxes as text, JSON and images; and how `octet evaluate --boxes` scores them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/detect/decode.h"
#include "tools/octet/commands.h"
#include "tools/octet/measured_run.h"

namespace octet::cli {

/// Returns a class's name, or "class 7" if the checkpoint has none.
std::string class_name(const Int8Graph& graph, int index);

/// The images that `octet run --out` writes, with boxes or classes drawn.
class DrawnImages {
 public:
  /// out: "", for none; a .png for one image; or a folder for any number, in which no two would have one name: NAME of
  /// the image, and `ending`. Throws Error(usage) and Error(data) otherwise, and for a file that is an image itself.
  DrawnImages(std::string out, std::string ending, const std::vector<std::string>& images);
  bool wanted() const { return !out_.empty(); }
  void write(const std::string& image, const Image& drawn) const;

 private:
  std::string file(const std::string& image) const;

  std::string out_, ending_;
};

/// The boxes of images.
class FoundBoxes {
 public:
  /// score: without, the checkpoint's threshold.
  FoundBoxes(const Int8Graph& graph, std::optional<double> score, const DrawnImages& drawn_images);

  /// Decodes the outputs of one image, `whole` before it was fitted to the input, and writes it with its boxes drawn if
  /// DrawnImages are wanted.
  void add(const std::string& file, const Image& whole, const BatchOutputs& outputs);

  std::string text() const;
  std::string json() const;

 private:
  struct OfImage {
    std::string file;
    ImageSize size;
    std::vector<Detection> boxes;
  };

  const Int8Graph& graph_;
  BoxOptions options_;
  const DrawnImages& drawn_images_;
  std::vector<OfImage> images_;
};

/// What `octet evaluate FILE --images FOLDER --boxes FILE` is asked for.
struct BoxEvaluation {
  std::string annotations;    ///< COCO's JSON; "": not asked for
  std::string classes;        ///< the file that names the network's classes, a line a class
  std::string detections;     ///< "", or where the detections are written as COCO's tools read results
  bool skip_missing = false;  ///< images that are not in the folder are left out
};

/// Measures the AP of a detector.
ExitCode evaluate_boxes(const Common& common, const MeasureOptions& options, const BoxEvaluation& boxes);

}  // namespace octet::cli
