// SPDX-License-Identifier: Apache-2.0
#include "tests/net/onnx/model_builder.h"

#include <stdexcept>

#include "onnx.pb.h"

namespace octet::test {
namespace {

onnx::AttributeProto& add(onnx::NodeProto& node, const std::string& name, onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

onnx::TensorProto& add(onnx::ModelProto& model, const std::string& name, onnx::TensorProto::DataType type) {
  onnx::TensorProto& tensor = *model.mutable_graph()->add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(type);
  return tensor;
}

}  // namespace

NodeBuilder& NodeBuilder::named(const std::string& name) {
  node_.set_name(name);
  return *this;
}

NodeBuilder& NodeBuilder::domain(const std::string& domain) {
  node_.set_domain(domain);
  return *this;
}

NodeBuilder& NodeBuilder::ints(const std::string& name, const std::vector<int64_t>& values) {
  onnx::AttributeProto& attribute = add(node_, name, onnx::AttributeProto::INTS);
  for (const int64_t value : values) attribute.add_ints(value);
  return *this;
}

NodeBuilder& NodeBuilder::integer(const std::string& name, int64_t value) {
  add(node_, name, onnx::AttributeProto::INT).set_i(value);
  return *this;
}

NodeBuilder& NodeBuilder::real(const std::string& name, float value) {
  add(node_, name, onnx::AttributeProto::FLOAT).set_f(value);
  return *this;
}

NodeBuilder& NodeBuilder::text(const std::string& name, const std::string& value) {
  add(node_, name, onnx::AttributeProto::STRING).set_s(value);
  return *this;
}

NodeBuilder& NodeBuilder::value(int64_t value) {
  onnx::TensorProto& tensor = *add(node_, "value", onnx::AttributeProto::TENSOR).mutable_t();
  tensor.set_data_type(onnx::TensorProto::INT64);
  tensor.add_dims(1);
  tensor.add_int64_data(value);
  return *this;
}

NodeBuilder& NodeBuilder::output(const std::string& name) {
  node_.add_output(name);
  return *this;
}

ModelBuilder::ModelBuilder(const std::vector<int64_t>& image, int opset) : model_(new onnx::ModelProto) {
  model_->set_ir_version(8);
  model_->set_producer_name("octet's tests");
  model_->add_opset_import()->set_version(opset);
  onnx::ValueInfoProto& input = *model_->mutable_graph()->add_input();
  input.set_name("image");
  auto& type = *input.mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx::TensorProto::FLOAT);
  type.mutable_shape()->add_dim()->set_dim_param("batch");
  for (const int64_t size : image) type.mutable_shape()->add_dim()->set_dim_value(size);
}

ModelBuilder::~ModelBuilder() = default;
ModelBuilder::ModelBuilder(ModelBuilder&&) noexcept = default;

std::vector<float> ModelBuilder::weight(const std::string& name, const std::vector<int64_t>& shape, float low,
                                        float high) {
  std::uniform_real_distribution<float> numbers(low, high);
  size_t count = 1;
  for (const int64_t dim : shape) count *= static_cast<size_t>(dim);
  std::vector<float> values(count);
  for (float& value : values) value = numbers(random_);
  onnx::TensorProto& tensor = add(*model_, name, onnx::TensorProto::FLOAT);
  for (const int64_t dim : shape) tensor.add_dims(dim);
  if (model_->graph().initializer_size() % 2 == 0) {
    tensor.set_raw_data(values.data(), values.size() * sizeof(float));
  } else {
    for (const float value : values) tensor.add_float_data(value);
  }
  return values;
}

void ModelBuilder::integers(const std::string& name, const std::vector<int64_t>& values) {
  onnx::TensorProto& tensor = add(*model_, name, onnx::TensorProto::INT64);
  tensor.add_dims(static_cast<int64_t>(values.size()));
  for (const int64_t value : values) tensor.add_int64_data(value);
}

void ModelBuilder::integer(const std::string& name, int64_t value) {
  add(*model_, name, onnx::TensorProto::INT64).add_int64_data(value);
}

void ModelBuilder::scalar(const std::string& name, float value) {
  add(*model_, name, onnx::TensorProto::FLOAT).add_float_data(value);
}

void ModelBuilder::reals(const std::string& name, const std::vector<float>& values) {
  onnx::TensorProto& tensor = add(*model_, name, onnx::TensorProto::FLOAT);
  tensor.add_dims(static_cast<int64_t>(values.size()));
  for (const float value : values) tensor.add_float_data(value);
}

void ModelBuilder::codes(const std::string& name, const std::vector<int>& values, bool is_signed) {
  onnx::TensorProto& tensor = add(*model_, name, is_signed ? onnx::TensorProto::INT8 : onnx::TensorProto::UINT8);
  if (values.size() > 1) tensor.add_dims(static_cast<int64_t>(values.size()));
  for (const int value : values) tensor.add_int32_data(value);
}

NodeBuilder ModelBuilder::node(const std::string& op, const std::vector<std::string>& inputs,
                               const std::string& output) {
  onnx::NodeProto& made = *model_->mutable_graph()->add_node();
  made.set_op_type(op);
  for (const std::string& input : inputs) made.add_input(input);
  made.add_output(output);
  return NodeBuilder(made);
}

void ModelBuilder::prepend(const std::string& op, const std::string& constant) {
  onnx::GraphProto& graph = *model_->mutable_graph();
  const std::string output = op + "_" + std::to_string(graph.node_size());
  for (onnx::NodeProto& node : *graph.mutable_node())
    for (std::string& input : *node.mutable_input())
      if (input == "image") input = output;
  node(op, {"image", constant}, output);
  for (int n = graph.node_size() - 1; n > 0; --n) graph.mutable_node()->SwapElements(n, n - 1);
}

void ModelBuilder::leave_size_open() {
  auto& input = *model_->mutable_graph()->mutable_input(0);
  auto& shape = *input.mutable_type()->mutable_tensor_type()->mutable_shape();
  shape.mutable_dim(2)->set_dim_param("height");
  shape.mutable_dim(3)->clear_value();
}

std::string ModelBuilder::bytes(const std::vector<std::string>& outputs) {
  model_->mutable_graph()->clear_output();
  for (const std::string& output : outputs) model_->mutable_graph()->add_output()->set_name(output);
  return model_->SerializeAsString();
}

std::pair<std::string, std::string> ends_of(const std::string& file) {
  onnx::ModelProto model;
  if (!model.ParseFromString(file)) throw std::runtime_error("no ONNX model");
  return {model.graph().input(0).name(), model.graph().output(0).name()};
}

}  // namespace octet::test
