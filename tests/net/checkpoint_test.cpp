// SPDX-License-Identifier: Apache-2.0
// int8.safetensors: the same graph gives the same bytes, and no damaged file is taken for a good one or crashes.
#include "src/net/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "src/base/files.h"
#include "src/base/safetensors.h"
#include "tests/net/test_graphs.h"

namespace octet {
namespace {

std::string refusal(const std::string& bytes) {
  return error_of([&] { parse(bytes); });
}

/// The checkpoint `bytes` with `from` replaced by `to` in its JSON document.
std::string edited(const std::string& from, const std::string& to,
                   const std::string& bytes = serialize_checkpoint(every_op_graph())) {
  TensorFile file = parse_safetensors(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "x");
  std::string& document = file.metadata.at("octet");
  const size_t place = document.find(from);
  EXPECT_NE(place, std::string::npos) << from << " in " << document;
  document.replace(place, from.size(), to);
  return serialize_safetensors(file);
}

void expect_equal(const Int8Node& a, const Int8Node& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.op, b.op);
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.window, b.window);
  EXPECT_EQ(a.groups, b.groups);
  EXPECT_EQ(a.first_channel, b.first_channel);
  EXPECT_EQ(a.factor_h, b.factor_h);
  EXPECT_EQ(a.factor_w, b.factor_w);
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(a.out, b.out);
  EXPECT_EQ(a.clamp_min, b.clamp_min);
  EXPECT_EQ(a.clamp_max, b.clamp_max);
  EXPECT_EQ(a.float_output, b.float_output);
  EXPECT_EQ(a.weight, b.weight);
  EXPECT_EQ(a.weight_scale, b.weight_scale);
  EXPECT_EQ(a.multiplier, b.multiplier);
  EXPECT_EQ(a.bias, b.bias);
  EXPECT_EQ(a.residual_multiplier, b.residual_multiplier);
  EXPECT_EQ(a.table, b.table);
  EXPECT_EQ(a.transposed, b.transposed);
  EXPECT_EQ(a.exponentials, b.exponentials);
  EXPECT_EQ(a.function, b.function);
}

TEST(Checkpoint, RoundTripKeepsEverything) {
  const Int8Graph graph = every_op_graph();
  const std::string bytes = serialize_checkpoint(graph);
  const Int8Graph read = parse(bytes);
  EXPECT_EQ(read.name, graph.name);
  EXPECT_EQ(read.preprocessing, graph.preprocessing);
  EXPECT_EQ(read.class_names, graph.class_names);
  EXPECT_EQ(read.recipe_hash, graph.recipe_hash);
  EXPECT_EQ(read.accuracies, graph.accuracies);
  ASSERT_EQ(read.nodes.size(), graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) expect_equal(read.nodes[i], graph.nodes[i]);
  EXPECT_EQ(read.outputs, graph.outputs);
  EXPECT_EQ(serialize_checkpoint(read), bytes);
}

TEST(Checkpoint, FilesAreByteIdentical) {
  const auto folder = std::filesystem::path(testing::TempDir()) / ("octet_checkpoint_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string first = (folder / "a.safetensors").string(), second = (folder / "b.safetensors").string();
  write_checkpoint(first, every_op_graph());
  write_checkpoint(second, read_checkpoint(first));
  EXPECT_EQ(read_file(first), read_file(second));
  std::filesystem::remove_all(folder);
}

TEST(Checkpoint, RefusesToWriteABadGraph) {
  Int8Graph graph = every_op_graph();
  graph.nodes[1].multiplier[0] = -1e30f;
  EXPECT_NE(error_of([&] { serialize_checkpoint(graph); }).find("conv1"), std::string::npos);
  graph = every_op_graph();
  graph.accuracies["int8_top1"] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(error_of([&] { serialize_checkpoint(graph); }).find("int8_top1"), std::string::npos);
}

TEST(Checkpoint, AnotherVersionSaysWhatToDo) {
  for (const char* version : {"0", "14"}) {
    const std::string message = refusal(edited("\"format_version\":10", std::string("\"format_version\":") + version));
    EXPECT_NE(message.find(std::string("test.safetensors: octet: written in format version ") + version),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("octet export"), std::string::npos) << message;
  }
}

Int8Graph graph_of_version_8() { return graph_of_operators_until(8); }

Int8Graph graph_of_version_5() { return graph_of_operators_until(5); }

Int8Graph graph_of_version_4() { return graph_of_operators_until(4); }

Int8Graph graph_of_version_3() { return graph_of_operators_until(3); }

/// Also without uneven padding and outputs but the last node.
Int8Graph graph_of_version_2() {
  Int8Graph graph = graph_of_operators_until(2);
  node_named(graph, "conv2").window.pad = even_padding(2, 2);
  return graph;
}

Int8Graph graph_of_version_1() {
  Int8Graph graph = graph_of_version_2();
  std::erase_if(graph.nodes, [](const Int8Node& node) { return node.op == Int8Op::lookup || node.op == Int8Op::mul; });
  graph.nodes.back().inputs = {11};  // what the lookup read
  graph.outputs = {static_cast<int>(graph.nodes.size()) - 1};
  return graph;
}

TEST(Checkpoint, IsWrittenInTheOldestVersionThatHasWhatItNeeds) {
  EXPECT_EQ(checkpoint_version(graph_of_version_1()), 1);
  EXPECT_EQ(checkpoint_version(graph_of_version_2()), 2);
  EXPECT_EQ(checkpoint_version(graph_of_version_3()), 3);
  EXPECT_EQ(checkpoint_version(graph_of_version_4()), 4);
  EXPECT_EQ(checkpoint_version(graph_of_version_5()), 5);
  EXPECT_EQ(checkpoint_version(graph_of_version_8()), 8);
  EXPECT_EQ(checkpoint_version(every_op_graph()), 10);
  const auto version_with = [](const std::function<void(Int8Graph&)>& change) {
    Int8Graph graph = graph_of_version_1();
    graph.class_names.clear();
    change(graph);
    return checkpoint_version(parse(serialize_checkpoint(graph)));
  };
  EXPECT_EQ(version_with([](Int8Graph&) {}), 1);
  EXPECT_EQ(version_with([](Int8Graph& graph) { graph.outputs.push_back(4); }), 3);
  EXPECT_EQ(version_with([](Int8Graph& graph) { graph.preprocessing.exif_orientation = true; }), 9);
  EXPECT_EQ(version_with([](Int8Graph& graph) { graph.preprocessing.even_margin = true; }), 9);
  EXPECT_EQ(version_with([](Int8Graph& graph) { graph.preprocessing.fit = Fit::stretch; }), 11);
  EXPECT_EQ(version_with([](Int8Graph& graph) { graph.preprocessing.order = ChannelOrder::bgr; }), 11);
  EXPECT_EQ(version_with([](Int8Graph& graph) { node_named(graph, "conv2").window.pad = {1, 2, 3, 2}; }), 3);
  EXPECT_EQ(version_with([](Int8Graph& graph) { graph.nodes.back().float_output = false; }), 3);
  EXPECT_EQ(version_with([](Int8Graph& graph) {
              graph.nodes.push_back(node_named(graph, "add"));  // nothing needs it, and the output is not the last node
              graph.nodes.back().name = "unread";
            }),
            3);
}

TEST(Checkpoint, AnOlderVersionHasNoNewerOperators) {
  const std::string message =
      refusal(edited("\"format_version\":2", "\"format_version\":1", serialize_checkpoint(graph_of_version_2())));
  EXPECT_NE(message.find("octet.nodes[12]: a lookup needs format version 2, the file says 1"), std::string::npos)
      << message;
  const std::string slopes = refusal(edited("\"format_version\":10", "\"format_version\":9"));
  EXPECT_NE(slopes.find("octet.nodes[21]: a prelu needs format version 10, the file says 9"), std::string::npos)
      << slopes;
}

/// Byte for byte what octet wrote before it knew newer versions, and read as that was meant.
TEST(Checkpoint, OlderVersionsStayAsTheyWere) {
  const std::string first = serialize_checkpoint(graph_of_version_1());
  const std::string second = serialize_checkpoint(graph_of_version_2());
  EXPECT_EQ(sha256(serialize_checkpoint(graph_of_version_8())),
            "c6d122c5763b08c73b648973f4e7c22f547843fdb8c72a4d6428a60388efa79d");
  EXPECT_EQ(sha256(serialize_checkpoint(graph_of_version_5())),
            "e9372639eda909a53d199610619b0f3ad5252dc2cbffa2d0f735d4a142e2b599");
  EXPECT_EQ(sha256(serialize_checkpoint(graph_of_version_4())),
            "a98f0004c07b2718019fbf671a74ae0495ddebd5457d1d4e09235e143530bdbc");
  EXPECT_EQ(sha256(serialize_checkpoint(graph_of_version_3())),
            "32ad21d48f681d8682e34f59457b8ef825e95e7775430af2ee7f9af8b7879d88");
  EXPECT_EQ(sha256(first), "9e7b3600ea81c2520a9fe018a6c1cbc664c406e97f618b679d15ab5ff597f9a1");
  EXPECT_EQ(sha256(second), "884719c5c6bbad15f5a03a56485ffc91088d6b1847f76ba90b1d6f222df61302");
  for (const std::string& bytes : {first, second}) {
    Int8Graph graph = parse(bytes);
    EXPECT_EQ(graph.outputs, std::vector<int>{static_cast<int>(graph.nodes.size()) - 1});
    EXPECT_EQ(node_named(graph, "conv2").window.pad, even_padding(2, 2));
    EXPECT_EQ(serialize_checkpoint(graph), bytes);
  }
}

/// Since version 12.
TEST(Checkpoint, TablesOfChannelsComeBack) {
  Int8Graph graph = graph_of_version_2();
  Int8Node& lookup = node_named(graph, "lookup");
  lookup.groups = lookup.shape.c;
  for (int channel = 1; channel < lookup.groups; ++channel)
    for (int i = 0; i < 256; ++i) lookup.table.push_back(static_cast<uint8_t>(i * 5 + channel));
  for (int scale = 0; scale < 2 * lookup.groups; ++scale) lookup.multiplier.push_back(0.3f + static_cast<float>(scale));
  const std::string bytes = serialize_checkpoint(graph);
  Int8Graph read = parse(bytes);
  EXPECT_EQ(checkpoint_version(read), 12);
  expect_equal(node_named(read, "lookup"), lookup);
  EXPECT_EQ(serialize_checkpoint(read), bytes);
  EXPECT_NE(refusal(edited("\"groups\":5", "\"groups\":1", bytes)).find("'lookup.multiplier' belongs to no node"),
            std::string::npos);
  EXPECT_NE(refusal(edited("\"groups\":5", "\"groups\":4", bytes)).find("10 multipliers, needs 8"), std::string::npos);
  EXPECT_NE(refusal(edited("\"format_version\":12", "\"format_version\":2", bytes)), "");
}

/// Since version 11.
TEST(Checkpoint, HowImagesAreFittedComesBack) {
  for (const Named<Fit>& fit : kFits) {
    for (const Named<ChannelOrder>& order : kChannelOrders) {
      Int8Graph graph = graph_of_version_1();
      graph.preprocessing.fit = fit.value;
      graph.preprocessing.order = order.value;
      const std::string bytes = serialize_checkpoint(graph);
      EXPECT_EQ(parse(bytes).preprocessing, graph.preprocessing) << fit.name << " " << order.name;
      EXPECT_EQ(serialize_checkpoint(parse(bytes)), bytes);
    }
  }
  Int8Graph graph = graph_of_version_1();
  graph.preprocessing.fit = Fit::letterbox;
  const std::string bytes = serialize_checkpoint(graph);
  EXPECT_NE(refusal(edited("\"fit\":\"letterbox\"", "\"fit\":\"mailbox\"", bytes))
                .find("octet.preprocessing: fit: 'mailbox' is none of crop, stretch, letterbox, letterbox_corner"),
            std::string::npos);
  EXPECT_NE(refusal(edited("\"channel_order\":\"rgb\",", "", bytes)).find("'channel_order' is missing"),
            std::string::npos);
}

/// Since version 9; what an older file means is what octet did then.
TEST(Checkpoint, HowImagesAreTurnedAndCutComesBack) {
  for (const bool exif : {false, true}) {
    for (const bool even : {false, true}) {
      Int8Graph graph = graph_of_version_1();
      graph.preprocessing.exif_orientation = exif;
      graph.preprocessing.even_margin = even;
      const std::string bytes = serialize_checkpoint(graph);
      EXPECT_EQ(parse(bytes).preprocessing, graph.preprocessing);
      EXPECT_EQ(serialize_checkpoint(parse(bytes)), bytes);
    }
  }
  Int8Graph graph = graph_of_version_8();
  const std::string older = serialize_checkpoint(graph);
  EXPECT_FALSE(parse(older).preprocessing.exif_orientation);
  EXPECT_FALSE(parse(older).preprocessing.even_margin);
  graph.preprocessing.exif_orientation = true;
  const std::string bytes = serialize_checkpoint(graph);
  EXPECT_NE(refusal(edited("\"orientation\":\"exif\"", "\"orientation\":\"sideways\"", bytes))
                .find("octet.preprocessing: orientation 'sideways', allowed are as_stored, exif"),
            std::string::npos);
  EXPECT_NE(refusal(edited("\"crop_margin\":\"down\",", "", bytes)).find("'crop_margin' is missing"),
            std::string::npos);
  EXPECT_NE(refusal(edited("\"format_version\":9", "\"format_version\":8", bytes)).find("unknown key"),
            std::string::npos)
      << refusal(edited("\"format_version\":9", "\"format_version\":8", bytes));
}

TEST(Checkpoint, SeveralOutputsComeBack) {
  Int8Graph graph = every_op_graph();
  graph.class_names.clear();
  graph.outputs = {3, 22, 15};
  EXPECT_EQ(parse(serialize_checkpoint(graph)).outputs, graph.outputs);
}

TEST(Checkpoint, RefusesDamagedOutputs) {
  const auto with = [](const std::string& outputs) {
    return refusal(edited("\"outputs\":[22]", "\"outputs\":" + outputs));
  };
  EXPECT_NE(with("[22,23]").find("output 23 is not one of the 23 nodes"), std::string::npos);
  EXPECT_NE(with("[2147483647]").find("output 2147483647 is not one"), std::string::npos);
  EXPECT_NE(with("[22,-1]").find("output -1 is not one"), std::string::npos);
  EXPECT_NE(with("[22,22]").find("'fc' is an output twice"), std::string::npos);
  EXPECT_NE(with("[22,0]").find("nothing but the input"), std::string::npos);
  EXPECT_NE(with("[]").find("has no outputs"), std::string::npos);
  EXPECT_NE(with("21").find("octet.outputs is not an array"), std::string::npos) << with("21");
  EXPECT_NE(with("[21.5]").find("not a 32-bit integer"), std::string::npos) << with("[21.5]");
  EXPECT_NE(refusal(edited(",\"outputs\":[22]", "")).find("'outputs' is missing"), std::string::npos);
  EXPECT_NE(refusal(edited("\"format_version\":8", "\"format_version\":2", serialize_checkpoint(graph_of_version_8())))
                .find("pad has 4 numbers, needs 2"),
            std::string::npos);
}

TEST(Checkpoint, RefusesDocumentsThatAreNotExactlyTheFormat) {
  EXPECT_NE(refusal(edited("\"recipe_hash\"", "\"recipe_hush\"")).find("'recipe_hash' is missing"), std::string::npos);
  EXPECT_NE(refusal(edited("\"groups\":2", "\"groups\":2,\"extra\":1")).find("unknown key 'extra'"), std::string::npos);
  EXPECT_NE(refusal(edited("\"op\":\"requantize\"", "\"op\":\"attention\"")).find("': unknown int8 op 'attention'"),
            std::string::npos);
  EXPECT_NE(refusal(edited("\"groups\":2", "\"groups\":2.0")).find("not a 32-bit integer"), std::string::npos);
  EXPECT_NE(refusal(edited("\"groups\":2", "\"groups\":4294967298")).find("not a 32-bit integer"), std::string::npos);
  EXPECT_NE(refusal(edited("\"residual_multiplier\":0.75", "\"residual_multiplier\":0.1")).find("not a float32"),
            std::string::npos);
  EXPECT_NE(refusal(edited("\"zero_point\":100", "\"zero_point\":300")).find("zero point 300"), std::string::npos);
  EXPECT_NE(refusal(edited("\"shape\":[3,6,6]", "\"shape\":[3,6]")).find("has 2 numbers, needs 3"), std::string::npos);
}

TEST(Checkpoint, RefusesWrongTensors) {
  const std::string bytes = serialize_checkpoint(every_op_graph());
  const TensorFile good = parse_safetensors(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "x");
  TensorFile file = good;
  file.tensors.erase("conv2.bias");
  EXPECT_NE(refusal(serialize_safetensors(file)).find("'conv2.bias' is missing"), std::string::npos);
  file = good;
  file.tensors["conv3.bias"] = file.tensors["conv2.bias"];
  EXPECT_NE(refusal(serialize_safetensors(file)).find("'conv3.bias' belongs to no node"), std::string::npos);
  file = good;
  file.tensors["conv1.weight"].dtype = DType::u8;
  EXPECT_NE(refusal(serialize_safetensors(file)).find("'conv1.weight' is U8, must be I8"), std::string::npos);
  file = good;
  file.tensors["conv1.weight"].shape = {4, 3, 3, 3};
  EXPECT_EQ(refusal(serialize_safetensors(file)), "");
  file.tensors["conv1.weight"].shape = {4, 27};
  EXPECT_NE(refusal(serialize_safetensors(file)).find("has shape [4, 27], must have [4, 3, 3, 3]"), std::string::npos);
  file = good;
  file.tensors.erase("lookup.table");
  EXPECT_NE(refusal(serialize_safetensors(file)).find("'lookup.table' is missing"), std::string::npos);
  file = good;
  file.tensors["lookup.table"].dtype = DType::u8;
  EXPECT_NE(refusal(serialize_safetensors(file)).find("'lookup.table' is U8, must be I8"), std::string::npos);
  file = good;
  file.tensors["lookup.table"].shape = {16, 16};
  EXPECT_NE(refusal(serialize_safetensors(file)).find("'lookup.table' has shape [16, 16], must have [256]"),
            std::string::npos);
  file.tensors["lookup.table"].bytes.resize(255);
  file.tensors["lookup.table"].shape = {255};
  EXPECT_NE(refusal(serialize_safetensors(file)).find("'lookup' (lookup): 255 table entries, needs 256"),
            std::string::npos);
  file = good;
  file.tensors.erase("softmax.exponentials");
  EXPECT_NE(refusal(serialize_safetensors(file)).find("'softmax.exponentials' is missing"), std::string::npos);
  file = good;
  file.tensors["softmax.exponentials"].dtype = DType::f32;
  EXPECT_NE(refusal(serialize_safetensors(file)).find("'softmax.exponentials' is F32, must be I32"), std::string::npos);
  file = good;
  file.tensors["softmax.exponentials"].shape = {2, 128};
  EXPECT_NE(refusal(serialize_safetensors(file)).find("has shape [2, 128], must have [256]"), std::string::npos);
  file = good;
  file.metadata.clear();
  EXPECT_NE(refusal(serialize_safetensors(file)).find("no octet checkpoint"), std::string::npos);
}

TEST(Checkpoint, EveryTruncationIsRefused) {
  const std::string bytes = serialize_checkpoint(every_op_graph());
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::vector<std::byte> prefix(reinterpret_cast<const std::byte*>(bytes.data()),
                                        reinterpret_cast<const std::byte*>(bytes.data()) + length);
    EXPECT_NE(error_of([&] { parse_checkpoint(prefix.data(), prefix.size(), "x"); }), "") << length;
  }
}

TEST(Checkpoint, RandomDamageIsRefusedOrValid) {
  const std::string bytes = serialize_checkpoint(every_op_graph());
  std::mt19937 random(2);
  int refused = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string damaged = bytes;
    for (int flips = 0; flips < 1 + round % 3; ++flips)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    const std::string message = error_of([&] { validate(parse(damaged)); });
    if (!message.empty()) ++refused;
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace octet
