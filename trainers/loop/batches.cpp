// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/batches.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/net/import/pytorch_file.h"
#include "src/train/model/model.h"
#include "src/train/proof/deployed_network.h"

namespace octet {
namespace {

/// Batches that the loader makes and normalizes on the CPU.
class LoadedBatches : public Batches {
 public:
  LoadedBatches(const RunData& data, const BatchesOptions& options) : data_(data), options_(options) {}

  void begin(const Epoch& epoch, long first_batch) override {
    loader_.emplace(*data_.train_set, data_.train, data_.train_transform,
                    loader_options(data_, options_, epoch, first_batch));
  }

  const Labelled* next() override {
    if (!loader_->next(batch_)) return nullptr;
    const Shape shape{data_.train_transform.channels, batch_.input.height, batch_.input.width};
    labelled_.images = images_to_tensor(batch_.images.data(), batch_.size, shape, data_.mean, data_.std);
    std::vector<int64_t> labels = batch_.labels_shape;
    labels.insert(labels.begin(), batch_.size);
    labelled_.labels = at::from_blob(batch_.labels.data(), labels, at::TensorOptions(at::kLong));
    return &labelled_;
  }

  double waited_seconds() const override { return loader_->waited_seconds(); }

 private:
  const RunData& data_;
  const BatchesOptions options_;
  std::optional<Loader> loader_;
  Batch batch_;
  Labelled labelled_;
};

}  // namespace

std::vector<int64_t> labels_shape(const RunData& data, int images, const Transform& transform) {
  std::vector<int64_t> shape = label_writer(*data.train_set, transform)->shape();
  shape.insert(shape.begin(), images);
  return shape;
}

Transform largest_input(Transform transform) {
  const PictureSize largest = input_sizes(transform).back();
  transform.height = largest.height;
  transform.width = largest.width;
  return transform;
}

LoaderOptions loader_options(const RunData& data, const BatchesOptions& options, const Epoch& epoch, long first_batch) {
  return {.batch_size = options.own_size(),
          .train = true,
          .join = epoch.number < options.joining_epochs,
          .seed = epoch.seed,
          .epoch = epoch.number,
          .first_batch = static_cast<int>(first_batch),
          .share = options.rank,
          .shares = options.ranks,
          .workers = data.workers};
}

void require_batches(const RunData& data, const BatchesOptions& options) {
  if (options.device.is_cpu() && data.decode == Decoding::gpu)
    throw usage_error("data.decode: gpu, but this run trains on the CPU; use cpu (--set data.decode=cpu)");
#if OCTET_CUDA
  if (data.decode == Decoding::gpu) require_decoding(data);
  if (options.device.is_cuda() && options.resident_images == ResidentImages::on) require_resident(data, options.device);
#endif
}

std::unique_ptr<Batches> make_batches(const RunData& data, const BatchesOptions& options) {
  require_batches(data, options);
#if OCTET_CUDA
  if (options.device.is_cuda()) return make_gpu_batches(data, options);
#endif
  return std::make_unique<LoadedBatches>(data, options);
}

at::Tensor network_input(const Batch& batch, const RunData& data, at::Device device) {
  if (const auto* ready = dynamic_cast<const InputTensors*>(data.train_set.get()))
    return ready->values(batch.indices, device);
  const Shape shape{data.evaluation_transform.channels, batch.input.height, batch.input.width};
  return images_to_tensor({batch.images.data(), batch.size, shape}, data.mean, data.std, device);
}

void for_inputs(const RunData& data, const Dataset& images, const std::vector<size_t>& indices, int batch_size,
                at::Device device, const std::function<void(const at::Tensor& x)>& take) {
  Loader loader(images, indices, data.evaluation_transform, {.batch_size = batch_size, .workers = data.workers});
  for (Batch batch; loader.next(batch);) take(network_input(batch, data, device));
}

std::vector<size_t> evenly_spaced(const std::vector<size_t>& indices, size_t count) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < count; ++i) chosen.push_back(indices[i * indices.size() / count]);
  return chosen;
}

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
