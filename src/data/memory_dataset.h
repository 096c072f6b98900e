// SPDX-License-Identifier: Apache-2.0
// Data sets without image files: those that are held in memory (MNIST's idx files and CIFAR's binary files), and images
// made by rule.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/data/dataset.h"

namespace octet {

/// Images of one size, [count, height, width, channels], with their labels.
struct MemoryImages {
  std::string name;  ///< file or folder, for messages
  int height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
  std::vector<std::string> class_names;
};

class MemoryDataset : public Dataset {
 public:
  explicit MemoryDataset(MemoryImages images) : images_(std::move(images)) {}
  size_t size() const override { return images_.labels.size(); }
  int channels() const override { return images_.channels; }
  int label(size_t index) const override { return images_.labels.at(index); }
  Image read(size_t index) const override {
    const size_t bytes = static_cast<size_t>(images_.height) * images_.width * images_.channels;
    const uint8_t* first = images_.pixels.data() + index * bytes;
    return {images_.height, images_.width, images_.channels, std::vector<uint8_t>(first, first + bytes)};
  }
  const std::vector<std::string>& class_names() const override { return images_.class_names; }
  std::optional<ImageSize> common_size() const override { return ImageSize{images_.height, images_.width}; }
  std::string describe(size_t index) const override { return images_.name + "[" + std::to_string(index) + "]"; }

 private:
  MemoryImages images_;
};

/// Reads MNIST's idx files (http://yann.lecun.com/exdb/mnist), gzipped or plain: 28x28 grey images, 10 classes. `split`
/// is "train" or "test".
MemoryImages read_idx_folder(const std::string& folder, const std::string& split, std::vector<std::string> class_names);

/// Reads one pair of idx files. Throws Error(data) naming the file.
MemoryImages read_idx_pair(const std::string& images_path, const std::string& labels_path, size_t classes);

/// Read the binary version of CIFAR-10 and CIFAR-100 (Krizhevsky 2009): records of label bytes and [3, 32, 32] pixels.
MemoryImages read_cifar10(const std::string& folder, const std::string& split);
MemoryImages read_cifar100(const std::string& folder, const std::string& split);

struct CifarLayout {
  int label_bytes = 1;  ///< the last one is the label: CIFAR-100 has a coarse one, then the fine one
  int classes = 10;
};
/// Appends the records of one file and interleaves their channels. Throws Error(data) naming the record.
void append_cifar_records(const std::string& bytes, const CifarLayout& layout, const std::string& name,
                          MemoryImages& images);

/// Opens images made by rule, for tests and trials without data, in integer arithmetic from spec.seed, spec.split and
/// the index, so that they are the same on every machine. With a class each they are stripes whose direction, width and
/// colour follow from the class: a linear classifier does poorly on them, a small CNN well. With a class for each pixel
/// (Labels::pixels) they are discs, boxes and triangles of fine stripes on a background of broad ones, with colours and
/// contrasts drawn alike for all, so that no pixel's colour tells its class; with synthetic_classes 2 the classes are
/// background and shape, with 4 background, disc, box and triangle. Throws Error(usage) for another number.
std::unique_ptr<Dataset> open_synthetic(const DatasetSpec& spec);

}  // namespace octet
