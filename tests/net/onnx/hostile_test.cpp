// SPDX-License-Identifier: Apache-2.0
// Files that are damaged, or made to break a reader.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "onnx.pb.h"
#include "src/base/files.h"
#include "tests/base/damage.h"
#include "tests/error_of.h"
#include "tests/net/onnx/imported.h"

namespace octet {
namespace {

using namespace test;
namespace fs = std::filesystem;

onnx::GraphProto& graph_of(ModelBuilder& builder) { return *builder.model().mutable_graph(); }

std::string refusal_of_file(const std::string& bytes) {
  return error_of([&] { imported(bytes); });
}

void expect_refused(const std::string& bytes, const std::string& part) {
  const std::string message = refusal_of_file(bytes);
  EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' lacks '" << part << "'";
}

/// Conv, Relu, Flatten, Gemm.
ModelBuilder small() {
  ModelBuilder model;
  model.weight("conv.weight", {4, 3, 3, 3});
  model.weight("fc.weight", {5, 4 * 6 * 6});
  model.node("Conv", {"image", "conv.weight"}, "c").named("first");
  model.node("Relu", {"c"}, "r");
  model.node("Flatten", {"r"}, "row");
  model.node("Gemm", {"row", "fc.weight"}, "y").integer("transB", 1);
  return model;
}

TEST(OnnxHostile, TruncatedAnywhere) {
  const std::string whole = small().bytes("y");
  ASSERT_EQ(refusal_of_file(whole), "");
  for (size_t size = 0; size < whole.size(); size += size < 600 ? 1 : 37)
    EXPECT_NE(refusal_of_file(whole.substr(0, size)), "") << size;
}

TEST(OnnxHostile, DamagedAnywhere) { EXPECT_GT(refused_of_damaged(small().bytes("y"), 3, refusal_of_file), 100); }

TEST(OnnxHostile, CyclesAndTwins) {
  ModelBuilder cycle;
  cycle.node("Add", {"image", "b"}, "a").named("turn");
  cycle.node("Relu", {"a"}, "b");
  expect_refused(cycle.bytes("b"),
                 "test.onnx: a cycle, in which each node reads what the next one gives and the last what the first "
                 "gives: node 'turn' (Add), node of output 'b' (Relu); no runtime can run this file: export");

  ModelBuilder longer;  // with nodes before and behind it
  longer.node("Relu", {"image"}, "before");
  longer.node("Relu", {"c"}, "behind");
  for (const auto& [from, to] : {std::pair{"c", "a"}, {"a", "b"}, {"b", "c"}})
    longer.node("Add", {"before", from}, to).named(std::string("to_") + to);
  expect_refused(longer.bytes("behind"), "gives: node 'to_c' (Add), node 'to_b' (Add), node 'to_a' (Add); no runtime");

  ModelBuilder itself;
  itself.node("Relu", {"a"}, "a");
  expect_refused(itself.bytes("a"), "gives: node of output 'a' (Relu); no runtime");

  ModelBuilder twins;
  twins.node("Relu", {"image"}, "a").named("one");
  twins.node("Relu", {"image"}, "a").named("two");
  expect_refused(twins.bytes("a"), "node 'two' (Relu): two nodes give 'a'");

  ModelBuilder weights = small();
  weights.weight("fc.weight", {2});
  expect_refused(weights.bytes("y"), "two weights are called 'fc.weight'");
}

TEST(OnnxHostile, AHundredThousandNodesInACycle) {
  ModelBuilder model;
  constexpr int kNodes = 100'000;
  for (int i = 0; i < kNodes; ++i) model.node("Relu", {std::to_string((i + 1) % kNodes)}, std::to_string(i));
  expect_refused(model.bytes("0"), "node of output '5' (Relu) and 99994 more; no runtime");
}

TEST(OnnxHostile, DeclaredShapes) {
  ModelBuilder huge = small();
  graph_of(huge).mutable_initializer(0)->set_dims(0, int64_t{1} << 60);
  expect_refused(huge.bytes("y"), "weights 'conv.weight': has 108 numbers, its shape [1152921504606846976, 3, 3, 3]");

  ModelBuilder negative = small();
  graph_of(negative).mutable_initializer(1)->set_dims(0, -1);
  expect_refused(negative.bytes("y"), "weights 'fc.weight': has shape [-1, 144]");

  ModelBuilder kernel = small();
  kernel.node("MaxPool", {"c"}, "z").ints("kernel_shape", {int64_t{1} << 40, 1});
  expect_refused(kernel.bytes("z"), "kernel_shape [1099511627776, 1]");

  expect_refused(ModelBuilder({3, int64_t{1} << 50, 8}).bytes("image"), "input 'image': dimension 2");
  ModelBuilder open;
  graph_of(open)
      .mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(3)
      ->set_dim_param("w");
  expect_refused(open.bytes("image"), "input 'image': its width is open ('w')");
}

TEST(OnnxHostile, TypesOfWeights) {
  ModelBuilder large = small();
  graph_of(large).mutable_initializer(0)->set_data_type(onnx::TensorProto::DOUBLE);
  expect_refused(large.bytes("y"), "weights 'conv.weight': has 0 numbers, its shape [4, 3, 3, 3] needs 108");
  graph_of(large).mutable_initializer(0)->set_data_type(onnx::TensorProto::COMPLEX64);
  expect_refused(large.bytes("y"), "weights 'conv.weight': is of type COMPLEX64; expected float32");

  ModelBuilder half = small();
  graph_of(half).mutable_initializer(1)->set_data_type(onnx::TensorProto::FLOAT16);
  expect_refused(half.bytes("y"), "weights 'fc.weight': has 2880 bytes, its shape [5, 144] needs 1440");

  ModelBuilder infinite = small();
  graph_of(infinite).mutable_initializer(0)->set_float_data(7, INFINITY);
  expect_refused(infinite.bytes("y"), "weights 'conv.weight': holds inf at [0, 0, 2, 1]");

  for (const int opset : {6, 24, 17}) {
    ModelBuilder other({3, 8, 8}, opset);
    other.node("Relu", {"image"}, "y");
    if (opset == 17) EXPECT_EQ(refusal_of_file(other.bytes("y")), "");  // as the message says
    if (opset != 17)
      expect_refused(other.bytes("y"), fmt::format("opset {}; octet reads 7 to 23: export the network again, "
                                                   "torch.onnx.export(..., opset_version=17)",
                                                   opset));
  }
}

TEST(OnnxHostile, DeepNesting) {
  ModelBuilder model;
  model.node("Relu", {"image"}, "y");
  onnx::GraphProto* graph = &graph_of(model);
  for (int depth = 0; depth < 200; ++depth) {
    onnx::AttributeProto& body = *graph->mutable_node(0)->add_attribute();
    body.set_name("body");
    body.set_type(onnx::AttributeProto::GRAPH);
    graph = body.mutable_g();
    graph->add_node()->set_op_type("If");
  }
  expect_refused(model.bytes("y"), "damaged");
}

/// Two bytes a node, a hundred times as much in memory.
TEST(OnnxHostile, EmptyParts) {
  std::string graph;
  for (int i = 0; i < 400'000; ++i) graph += std::string("\x0a\x00", 2);
  onnx::ModelProto model;
  ASSERT_TRUE(model.mutable_graph()->ParseFromString(graph.substr(0, 20)));
  const std::string bytes = std::string("\x3a\x80\xea\x30", 4) + graph;  // field 7, 800,000 bytes
  expect_refused(bytes, "would take more than 32 times its size in memory");
}

/// One weight of a megabyte, read by a thousand nodes.
TEST(OnnxHostile, AWeightOfManyNodes) {
  ModelBuilder model({512, 1, 1});
  model.weight("w", {512, 512, 1, 1});
  std::string last = "image";
  for (int i = 0; i < 1000; ++i) {
    const std::string next = "c" + std::to_string(i);
    model.node("Conv", {last, "w"}, next);
    last = next;
  }
  expect_refused(model.bytes(last), "weights that nodes share");
}

/// An image is no bytes of the file: the window that takes its last pixel would be 256 MB.
TEST(OnnxHostile, ALaterPixelOfALargeImage) {
  ModelBuilder model({1, 8192, 8192});
  model.integers("starts", {8190, 8190});
  model.integers("ends", {8192, 8192});
  model.integers("axes", {2, 3});
  model.integers("steps", {8191, 8191});
  model.node("Slice", {"image", "starts", "ends", "axes", "steps"}, "y");
  const auto most_memory = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;  // kB
  };
  const long before = most_memory();
  expect_refused(model.bytes("y"), "take more than 32 times what was read");
  EXPECT_LT(most_memory() - before, 100'000);
}

class OnnxExternalData : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "inside");
    std::ofstream(folder_ / "inside" / "weights.bin", std::ios::binary) << std::string(4 * 108 + 16, '\0');
    std::ofstream(folder_ / "outside.bin", std::ios::binary) << std::string(4 * 108, '\0');
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string import_with(const std::string& location, const std::string& offset) {
    ModelBuilder model;
    model.weight("w", {4, 3, 3, 3});
    onnx::TensorProto& tensor = *graph_of(model).mutable_initializer(0);
    tensor.clear_float_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : {std::pair{"location", location}, std::pair{"offset", offset}}) {
      onnx::StringStringEntryProto& entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
    model.node("Conv", {"image", "w"}, "y");
    const std::string path = (folder_ / "inside" / "model.onnx").string();
    write_file_atomically(path, model.bytes("y"));
    return error_of([&] { import_onnx(path); });
  }

  const fs::path folder_ = fs::temp_directory_path() / ("octet_onnx_" + std::to_string(getpid()));
};

TEST_F(OnnxExternalData, InTheModelsFolderOnly) {
  EXPECT_EQ(import_with("weights.bin", "16"), "");
  fs::create_symlink(folder_ / "outside.bin", folder_ / "inside" / "link.bin");
  const std::string outside = (folder_ / "outside.bin").string();
  for (const std::string& location :
       std::vector<std::string>{"../outside.bin", "link.bin", "", "x/../../outside.bin", outside})
    EXPECT_NE(import_with(location, "0").find("does not lie in the model's folder"), std::string::npos) << location;
  EXPECT_NE(import_with("missing.bin", "0").find("no such file"), std::string::npos);
  EXPECT_NE(import_with("weights.bin", "17").find("needs 432 bytes at offset 17"), std::string::npos);
  EXPECT_NE(import_with("weights.bin", "-1").find("offset '-1' is not a number"), std::string::npos);
}

}  // namespace
}  // namespace octet
