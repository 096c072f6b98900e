// SPDX-License-Identifier: Apache-2.0
#include "src/net/onnx/writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "src/base/error.h"

namespace octet {
namespace {

using onnx::AttributeProto;
using onnx::TensorProto;

/// Returns the IR version of the file: opset 21 came with IR version 10, opset 13 with 7.
int64_t format_version(int opset) { return opset >= 21 ? 10 : 7; }

void describe(onnx::ValueInfoProto& value, const std::string& name, const std::vector<int64_t>& shape) {
  value.set_name(name);
  onnx::TypeProto_Tensor& type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(TensorProto::FLOAT);
  type.mutable_shape()->add_dim()->set_dim_param("N");
  for (const int64_t dim : shape) type.mutable_shape()->add_dim()->set_dim_value(dim);
}

}  // namespace

OnnxWriter::OnnxWriter(const std::string& name, const Shape& input, int opset, EndNames ends) : ends_(std::move(ends)) {
  model_.set_ir_version(format_version(opset));
  model_.set_producer_name("octet");
  model_.add_opset_import()->set_version(opset);
  model_.mutable_graph()->set_name(name);
  describe(*model_.mutable_graph()->add_input(), ends_.input, {input.c, input.h, input.w});
}

std::string OnnxWriter::fresh(std::string name) {
  while (!names_.insert(name).second) name += "_";
  return name;
}

std::string OnnxWriter::constant(const std::string& stem, int type, const std::vector<int64_t>& shape, const void* data,
                                 size_t size) {
  TensorProto& tensor = *model_.mutable_graph()->add_initializer();
  tensor.set_name(fresh(stem));
  tensor.set_data_type(type);
  for (const int64_t dim : shape) tensor.add_dims(dim);
  tensor.set_raw_data(data, size);
  return tensor.name();
}

std::string OnnxWriter::floats(const std::string& stem, const std::vector<int64_t>& shape, const float* values) {
  size_t count = 1;
  for (const int64_t dim : shape) count *= static_cast<size_t>(dim);
  return constant(stem, TensorProto::FLOAT, shape, values, count * sizeof(float));
}

std::string OnnxWriter::codes(const std::string& stem, const std::vector<int64_t>& shape,
                              const std::vector<int8_t>& values) {
  return constant(stem, TensorProto::INT8, shape, values.data(), values.size());
}

std::string OnnxWriter::int32s(const std::string& stem, const std::vector<int32_t>& values) {
  return constant(stem, TensorProto::INT32, {static_cast<int64_t>(values.size())}, values.data(),
                  values.size() * sizeof(int32_t));
}

std::string OnnxWriter::int64s(const std::string& stem, const std::vector<int64_t>& values) {
  return constant(stem, TensorProto::INT64, {static_cast<int64_t>(values.size())}, values.data(),
                  values.size() * sizeof(int64_t));
}

std::string OnnxWriter::scalar(const std::string& stem, float value) { return floats(stem, {}, &value); }

std::string OnnxWriter::zero_point(const std::string& stem, int32_t code, bool is_signed) {
  const auto byte = static_cast<uint8_t>(code);  // two's complement
  return constant(stem, is_signed ? TensorProto::INT8 : TensorProto::UINT8, {}, &byte, 1);
}

std::string OnnxWriter::node(const std::string& op, const std::string& name, const std::vector<std::string>& inputs) {
  onnx::NodeProto& node = *model_.mutable_graph()->add_node();
  node.set_op_type(op);
  node.set_name(fresh(name));
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(node.name());
  return node.name();
}

void OnnxWriter::attribute(const char* name, int64_t value) {
  onnx::GraphProto& graph = *model_.mutable_graph();
  AttributeProto& attribute = *graph.mutable_node(graph.node_size() - 1)->add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::INT);
  attribute.set_i(value);
}

void OnnxWriter::real_attribute(const char* name, double value) {
  onnx::GraphProto& graph = *model_.mutable_graph();
  AttributeProto& attribute = *graph.mutable_node(graph.node_size() - 1)->add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::FLOAT);
  attribute.set_f(static_cast<float>(value));
}

void OnnxWriter::attribute(const char* name, const std::vector<int64_t>& values) {
  onnx::GraphProto& graph = *model_.mutable_graph();
  AttributeProto& attribute = *graph.mutable_node(graph.node_size() - 1)->add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::INTS);
  for (const int64_t value : values) attribute.add_ints(value);
}

void OnnxWriter::text_attribute(const char* name, const std::string& value) {
  onnx::GraphProto& graph = *model_.mutable_graph();
  AttributeProto& attribute = *graph.mutable_node(graph.node_size() - 1)->add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::STRING);
  attribute.set_s(value);
}

void OnnxWriter::window(const Window& w, bool dilations) {
  attribute("kernel_shape", {w.kernel_h, w.kernel_w});
  attribute("strides", {w.stride_h, w.stride_w});
  attribute("pads", {w.pad.top, w.pad.left, w.pad.bottom, w.pad.right});
  if (dilations) attribute("dilations", {w.dilation_h, w.dilation_w});
}

std::vector<std::string> OnnxWriter::inputs(const std::string& name, const std::vector<int>& nodes, bool row,
                                            const std::vector<std::string>& edges, const std::vector<bool>& rows) {
  std::vector<std::string> x;
  for (const int input : nodes) {
    const auto at = static_cast<size_t>(input);
    const std::string pixel = name + "/Unsqueeze";
    x.push_back(rows[at] && !row ? node("Unsqueeze", pixel, {edges[at], int64s(pixel + "/axes", {2, 3})}) : edges[at]);
  }
  return x;
}

std::string OnnxWriter::flatten(const std::string& name, const std::string& x) {
  const std::string y = node("Flatten", name, {x});
  attribute("axis", 1);
  return y;
}

/// If another value or constant already has an output's name, the two exchange names wherever they are read.
void OnnxWriter::name_outputs(std::vector<Output> all) {
  onnx::GraphProto& graph = *model_.mutable_graph();
  for (Output& output : all) {
    const std::string& name = output.name;
    if (name == ends_.input)
      throw usage_error(
          fmt::format("export: an output is called '{}', as the file's input is: give one of them another name", name));
    const bool pixel = output.shape.h == 1 && output.shape.w == 1;
    const std::string value = pixel && !output.row ? flatten(name + "/Flatten", output.value) : output.value;
    const auto swap = [&](std::string& other) { other = other == name ? value : other == value ? name : other; };
    for (TensorProto& tensor : *graph.mutable_initializer()) swap(*tensor.mutable_name());
    for (onnx::NodeProto& node : *graph.mutable_node()) {
      for (std::string& input : *node.mutable_input()) swap(input);
      for (std::string& result : *node.mutable_output()) swap(result);
    }
    for (Output& later : all) swap(later.value);
    const std::vector<int64_t> image = {output.shape.c, output.shape.h, output.shape.w};
    describe(*graph.add_output(), name, pixel ? std::vector<int64_t>{output.shape.c} : image);
  }
}

std::string OnnxWriter::finish(const Preprocessing& preprocessing, const std::vector<std::string>& class_names) {
  model_.set_doc_string("Images: RGB or grey pixels in 0..1, (pixel - mean) / std a channel, float32 [N, C, H, W]");
  const auto add = [&](const char* key, const std::string& value) {
    onnx::StringStringEntryProto& entry = *model_.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  };
  add("mean", fmt::format("{}", fmt::join(preprocessing.mean, " ")));
  add("std", fmt::format("{}", fmt::join(preprocessing.std, " ")));
  add("resize", fmt::format("{}", preprocessing.resize));
  add("crop", fmt::format("{}", preprocessing.crop));
  if (preprocessing.exif_orientation) add("orientation", "exif");
  if (preprocessing.even_margin) add("crop_margin", "half_to_even");
  if (preprocessing.fit != Fit::crop) add("fit", std::string(name_in(kFits, preprocessing.fit)));
  if (preprocessing.order != ChannelOrder::rgb)
    add("channel_order", std::string(name_in(kChannelOrders, preprocessing.order)));
  if (!class_names.empty()) add("class_names", fmt::format("{}", fmt::join(class_names, "\n")));
  std::string bytes;
  if (!model_.SerializeToString(&bytes))
    throw usage_error("larger than 2 GB, which no ONNX file may be: take a narrower network");
  return bytes;
}

}  // namespace octet
