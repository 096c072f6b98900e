#include "src/graph/code_dump.h"

#include "src/tensor_files/safetensors.h"

namespace octet {
namespace {

constexpr const char* kImages = "images";

TensorData empty_tensor(const Shape& shape, DType dtype) { return {dtype, {0, shape.h, shape.w, shape.c}, {}}; }

}  // namespace

CodeDump::CodeDump(const Int8Graph& graph) {
  file_.tensors[kImages] = empty_tensor(graph.input_shape(), DType::u8);
  for (const Int8Node& node : graph.nodes) {
    keys_.push_back((node.float_output ? "values/" : "codes/") + node.name);
    const DType codes = node.out.is_signed() ? DType::i8 : DType::u8;
    file_.tensors[keys_.back()] = empty_tensor(node.shape, node.float_output ? DType::f32 : codes);
  }
}

void CodeDump::append(const std::string& key, const void* data, size_t bytes) {
  std::vector<std::byte>& all = file_.tensors.at(key).bytes;
  const auto* begin = static_cast<const std::byte*>(data);
  all.insert(all.end(), begin, begin + bytes);
}

void CodeDump::add_images(const uint8_t* pixels, int batch) {
  const TensorData& images = file_.tensors.at(kImages);
  append(kImages, pixels, static_cast<size_t>(batch * images.shape[1] * images.shape[2] * images.shape[3]));
  images_ += batch;
}

void CodeDump::add(int node, const void* data, size_t bytes) {
  append(keys_.at(static_cast<size_t>(node)), data, bytes);
}

void CodeDump::write(const std::string& path) const {
  TensorFile file = file_;
  for (auto& [key, tensor] : file.tensors) tensor.shape[0] = images_;
  write_safetensors(path, file);
}

}  // namespace octet
