// SPDX-License-Identifier: Apache-2.0
// Inputs of a network that lie ready in a file, in place of images that are decoded and normalized.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "kernels/core/quantize.h"
#include "src/base/safetensors.h"
#include "src/data/dataset.h"
#include "src/net/graph.h"

namespace octet {

/// Returns the tensor of a .npz, .npy or .safetensors file that is named like the network's input, or the file's only
/// one. Throws Error(data) naming the file, its tensors and the cure.
TensorData read_input_tensor(const std::string& path, const std::string& input);

/// A data set of ready inputs. What the float network reads is values(). Pixels, which engines read, are the bytes of
/// the input's codes; they are known once the input has a scale.
class InputTensors : public Dataset {
 public:
  /// tensor: float32 as the float network reads it, normalized, or uint8, which stands for 0 to 255; [N, C, H, W] with
  /// the network's C, H and W. `name` stands for it in messages. Throws Error(data) for another type or shape, and for
  /// values that are not finite or that no scale of a checkpoint can hold.
  InputTensors(TensorData tensor, std::string name, const Shape& input);

  /// Returns the inputs as the float network reads them: [N, C, H, W], channels-last.
  at::Tensor values(const std::vector<size_t>& indices, at::Device device) const;

  /// Sets the codes that read() returns.
  void set_codes(const QParams& codes) { codes_ = codes; }

  size_t size() const override { return static_cast<size_t>(tensor_.shape[0]); }
  int channels() const override { return input_.c; }
  int label(size_t) const override { return 0; }
  Image read(size_t index) const override;  ///< zeros before set_codes()
  const std::vector<std::string>& class_names() const override { return no_classes_; }
  std::string describe(size_t index) const override;

 private:
  at::Tensor value(size_t index) const;

  TensorData tensor_;
  std::string name_;
  Shape input_;
  std::optional<QParams> codes_;
  std::vector<std::string> no_classes_;
};

}  // namespace octet
