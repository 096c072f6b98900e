// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/input_tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/net/import/numpy_file.h"
#include "src/train/proof/deployed_network.h"

namespace octet {
namespace {

constexpr float kSmallest = 1e-5f, kLargest = 4e5f;  // of the largest magnitude: a checkpoint's deviation is bounded

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void check_shape(const TensorData& tensor, const std::string& name, const Shape& in) {
  const std::vector<int64_t>& shape = tensor.shape;
  const std::string wanted = fmt::format("the network reads [N, {}, {}, {}]", in.c, in.h, in.w);
  if (shape.size() == 4 && shape[1] == in.h && shape[2] == in.w && shape[3] == in.c && shape[1] != in.c)
    throw data_error(fmt::format("{}: {} has its channels last, {}: np.transpose(array, (0, 3, 1, 2))", name,
                                 shape_text(shape), wanted));
  if (shape.size() != 4 || shape[1] != in.c || shape[2] != in.h || shape[3] != in.w)
    throw data_error(fmt::format("{}: {}; {}: give it inputs of that shape", name, shape_text(shape), wanted));
  if (tensor.dtype != DType::f32 && tensor.dtype != DType::u8)
    throw data_error(fmt::format("{}: {}; the network reads F32 (array.astype(np.float32)), or U8 for values 0 to 255",
                                 name, dtype_name(tensor.dtype)));
  if (shape[0] == 0)
    throw data_error(fmt::format("{}: {} holds no input; 100 to 300 are usual", name, shape_text(shape)));
}

}  // namespace

TensorData read_input_tensor(const std::string& path, const std::string& input) {
  TensorFile file = path.ends_with(".safetensors") ? read_safetensors(path) : read_numpy_file(path);
  auto& tensors = file.tensors;
  if (tensors.empty()) throw data_error(path + ": holds no array; np.savez(FILE, array) writes one");
  if (tensors.size() == 1) return std::move(tensors.begin()->second);
  if (const auto named = tensors.find(input); named != tensors.end()) return std::move(named->second);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back("'" + printable(name) + "'");
  if (names.size() > 8) names.resize(8);
  throw data_error(fmt::format(
      "{}: holds {} ({}), none named '{}' as the network's input is; join them, np.concatenate, or name one "
      "so",
      path, counted(static_cast<long>(tensors.size()), "array"), fmt::join(names, ", "), printable(input)));
}

InputTensors::InputTensors(TensorData tensor, std::string name, const Shape& input)
    : tensor_(std::move(tensor)), name_(std::move(name)), input_(input) {
  check_shape(tensor_, name_, input_);
  float largest = 0;
  for (size_t i = 0; i < size(); ++i) {
    const at::Tensor magnitude = value(i).abs().max();
    if (!magnitude.isfinite().item<bool>()) {
      const at::Tensor one = value(i).contiguous();
      const std::vector<float> values(one.const_data_ptr<float>(), one.const_data_ptr<float>() + one.numel());
      throw data_error(fmt::format("{}: input {} {}; leave it out or mend it", name_, i,
                                   not_finite(values, {input_.c, input_.h, input_.w})));
    }
    largest = std::max(largest, magnitude.item<float>());
  }
  if (largest < kSmallest || largest > kLargest)
    throw data_error(
        fmt::format("{}: the largest magnitude is {:g}, it must be between {:g} and {:g}: give the inputs "
                    "normalized as the float network reads them",
                    name_, largest, kSmallest, kLargest));
}

/// Returns one input, float [C, H, W].
at::Tensor InputTensors::value(size_t index) const {
  const bool bytes = tensor_.dtype == DType::u8;
  const size_t stride = static_cast<size_t>(input_.elements()) * dtype_size(tensor_.dtype);
  auto* data = const_cast<std::byte*>(tensor_.bytes.data() + index * stride);  // from_blob takes no const memory
  return at::from_blob(data, {input_.c, input_.h, input_.w}, bytes ? at::kByte : at::kFloat).to(at::kFloat);
}

at::Tensor InputTensors::values(const std::vector<size_t>& indices, at::Device device) const {
  at::Tensor x = at::empty({static_cast<int64_t>(indices.size()), input_.c, input_.h, input_.w}, at::kFloat,
                           at::MemoryFormat::ChannelsLast);
  for (size_t i = 0; i < indices.size(); ++i) x[static_cast<int64_t>(i)].copy_(value(indices[i]));
  return x.to(device);
}

Image InputTensors::read(size_t index) const {
  Image image{input_.h, input_.w, input_.c, {}};
  if (codes_)
    image.pixels = pixels_of(value(index).unsqueeze(0), *codes_);
  else
    image.pixels.resize(static_cast<size_t>(input_.elements()));
  return image;
}

std::string InputTensors::describe(size_t index) const { return fmt::format("{}[{}]", name_, index); }

}  // namespace octet
