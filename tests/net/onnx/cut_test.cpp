// SPDX-License-Identifier: Apache-2.0
// Where a network ends: its outputs may be chosen, and what is refused behind the last layer says where.
#include <functional>
#include <map>

#include "src/base/error.h"
#include "tests/error_of.h"
#include "tests/net/onnx/imported.h"

namespace octet {
namespace {

using namespace test;

std::string refusal(ModelBuilder& model, const std::string& output) {
  return error_of([&] { imported(model.bytes(output)); });
}

/// One scale of a detector: boxes and classes of a pixel as its channels, under the name `y`.
void scale(ModelBuilder& model, const std::string& x, const std::string& y) {
  model.weight(y + ".boxes.weight", {4, 8, 1, 1});
  model.weight(y + ".classes.weight", {3, 8, 1, 1});
  model.node("Conv", {x, y + ".boxes.weight"}, y + "_boxes");
  model.node("Conv", {x, y + ".classes.weight"}, y + "_scores");
  model.node("Sigmoid", {y + "_scores"}, y + "_classes");
  model.node("Concat", {y + "_boxes", y + "_classes"}, y).integer("axis", 1);
}

/// As YOLOX has it: two scales, laid behind each other and turned.
ModelBuilder detector() {
  ModelBuilder model;
  model.weight("stem.weight", {8, 3, 3, 3});
  model.weight("down.weight", {8, 8, 3, 3});
  model.integers("pixels_last", {0, 7, -1});
  model.node("Conv", {"image", "stem.weight"}, "large").ints("pads", {1, 1, 1, 1});
  model.node("Conv", {"large", "down.weight"}, "small").ints("pads", {1, 1, 1, 1}).ints("strides", {2, 2});
  scale(model, "large", "p3");
  scale(model, "small", "p4");
  model.node("Reshape", {"p3", "pixels_last"}, "row3");  // so far as attention begins
  model.node("Reshape", {"p4", "pixels_last"}, "row4");
  model.node("Concat", {"row3", "row4"}, "rows").integer("axis", 2);
  model.node("Transpose", {"rows"}, "boxes").ints("perm", {0, 2, 1});
  return model;
}

TEST(OnnxCut, ADetectorsDecodingIsNamedWithTheValuesBeforeIt) {
  ModelBuilder model = detector();
  const std::string message = refusal(model, "boxes");
  for (const char* part :
       {"test.onnx: node of output 'rows' (Concat): input 'row3' is in heads", "decoding and suppressing boxes",
        "stays outside octet", "Leave it to your program (Sigmoid, Concat, Reshape, Transpose)",
        "model.outputs: [\"p3_boxes\", \"p3_scores\", \"p4_boxes\", \"p4_scores\"]",
        "octet inspect test.onnx --outputs p3_boxes,p3_scores,p4_boxes,p4_scores"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  // The values of the advice, for programs that take it themselves.
  try {
    imported(model.bytes("boxes"));
    ADD_FAILURE() << "imported";
  } catch (const OnnxEndsTooLate& late) {
    EXPECT_EQ(late.end_at, (std::vector<std::string>{"p3_boxes", "p3_scores", "p4_boxes", "p4_scores"}));
    EXPECT_EQ(imported(model.bytes("boxes"), late.end_at).graph.outputs.size(), 4u);
  }
}

TEST(OnnxCut, ChosenValuesBecomeTheOutputsInTheirOrder) {
  ModelBuilder model = detector();
  const ImportedNetwork network = imported(model.bytes("boxes"), {"p4", "p3"});
  ASSERT_EQ(network.graph.outputs.size(), 2u);
  const auto shape = [&](size_t i) { return network.graph.nodes[static_cast<size_t>(network.graph.outputs[i])].shape; };
  EXPECT_EQ(shape(0), (Shape{7, 4, 4}));
  EXPECT_EQ(shape(1), (Shape{7, 8, 8}));
  EXPECT_EQ(imported(model.bytes("boxes"), {"large"}).graph.nodes.size(), 2u);  // what is behind is left out
}

TEST(OnnxCut, PickingAClassIsNamedToo) {
  for (const char* op : {"ArgMax", "TopK", "NonMaxSuppression", "GatherND"}) {
    ModelBuilder model({3, 1, 1});
    model.weight("fc.weight", {10, 3});
    model.integers("k", {5});
    model.node("Flatten", {"image"}, "row");
    model.node("Gemm", {"row", "fc.weight"}, "logits").integer("transB", 1);
    model.node(op, {"logits", "k"}, "y").named("pick");
    const std::string message = refusal(model, "y");
    EXPECT_NE(message.find(std::string("node 'pick' (") + op + ")"), std::string::npos) << message;
    EXPECT_NE(message.find("model.outputs: [\"logits\"]"), std::string::npos) << message;
    EXPECT_EQ(imported(model.bytes("y"), {"logits"}).graph.nodes.back().op, Op::linear);
  }
}

/// An output that waits for a layer behind it: the value before it.
TEST(OnnxCut, AnOutputThatIsNoneNamesTheValueBefore) {
  ModelBuilder model;
  model.weight("conv.weight", {8, 3, 3, 3});
  model.integers("pads", {0, 0, 1, 1, 0, 0, 1, 1});
  model.node("Conv", {"image", "conv.weight"}, "boxes");
  model.node("Pad", {"boxes", "pads"}, "larger");
  const std::string message = refusal(model, "larger");
  EXPECT_NE(message.find("output 'larger': comes from a Pad"), std::string::npos) << message;
  EXPECT_NE(message.find("model.outputs: [\"boxes\"]"), std::string::npos) << message;
}

/// An activation times a number is an output like another: a layer of its own.
TEST(OnnxCut, AnOutputMayBeScaled) {
  ModelBuilder model;
  model.weight("conv.weight", {8, 3, 3, 3});
  model.scalar("stride", 32);
  model.node("Conv", {"image", "conv.weight"}, "boxes");
  model.node("Mul", {"boxes", "stride"}, "pixels");
  const ImportedNetwork network = imported(model.bytes("pixels"));
  EXPECT_EQ(to_float(network.weights.tensors.at("pixels.weight")), std::vector<float>(8, 32.0f));
}

/// Names as a recipe takes them; --outputs has a comma between names.
TEST(OnnxCut, NamesWithCommasAndQuotesAreProposedWhereTheyCanBeSaid) {
  for (const bool comma : {false, true}) {
    const std::string name = comma ? "boxes,large" : "the \"boxes\" \\ large";
    ModelBuilder model;
    model.weight("conv.weight", {8, 3, 3, 3});
    model.node("Conv", {"image", "conv.weight"}, name);
    model.node("NonMaxSuppression", {name}, "y");
    const std::string message = refusal(model, "y");
    const std::string quoted = comma ? "\"boxes,large\"" : "\"the \\\"boxes\\\" \\\\ large\"";
    EXPECT_NE(message.find("model.outputs: [" + quoted + "]"), std::string::npos) << message;
    EXPECT_EQ(message.find("--outputs") == std::string::npos, comma) << message;
  }
}

/// Where layers stand behind it, to end the network there is no cure.
TEST(OnnxCut, InTheMiddleNoEndIsProposed) {
  ModelBuilder model;
  model.weight("a.weight", {8, 3, 3, 3});
  model.weight("b.weight", {8, 8, 3, 3});
  model.node("Conv", {"image", "a.weight"}, "a");
  model.node("Einsum", {"a"}, "mixed").named("mix");
  model.node("Conv", {"mixed", "b.weight"}, "y");
  const std::string message = refusal(model, "y");
  EXPECT_NE(message.find("node 'mix' (Einsum)"), std::string::npos) << message;
  EXPECT_EQ(message.find("model.outputs"), std::string::npos) << message;

  ModelBuilder first;  // nothing would be left
  first.weight("b.weight", {8, 3, 3, 3});
  first.node("Einsum", {"image"}, "y");
  EXPECT_EQ(refusal(first, "y").find("model.outputs"), std::string::npos);
}

/// As convert_float_to_float16 writes a file: what it adds stands at the end.
TEST(OnnxCut, NodesInAnyOrderAreSorted) {
  const auto names_of = [](const std::vector<std::string>& order) {
    ModelBuilder model;
    model.weight("w", {8, 3, 3, 3});
    const std::map<std::string, std::function<void()>> nodes = {
        {"cast", [&] { model.node("Cast", {"image"}, "cast").integer("to", 1); }},
        {"conv",
         [&] {
           model.node("Conv", {"cast", "w"}, "conv");
         }},
        {"left", [&] { model.node("Relu", {"conv"}, "left"); }},
        {"right", [&] { model.node("Sigmoid", {"conv"}, "right"); }},
        {"sum", [&] {
           model.node("Add", {"right", "left"}, "sum");
         }}};
    for (const std::string& name : order) nodes.at(name)();
    std::vector<std::string> names;
    for (const Node& node : imported(model.bytes("sum")).graph.nodes) names.push_back(node.name);
    return names;
  };
  const std::vector<std::string> sorted = {"image", "conv", "left", "right", "sum"};
  EXPECT_EQ(names_of({"cast", "conv", "left", "right", "sum"}), sorted);
  EXPECT_EQ(names_of({"conv", "left", "right", "sum", "cast"}), sorted);
  EXPECT_EQ(names_of({"sum", "left", "cast", "right", "conv"}), sorted);
  const std::vector<std::string> other = {"image", "conv", "right", "left", "sum"};  // as it stands in the file
  EXPECT_EQ(names_of({"cast", "conv", "right", "left", "sum"}), other);
  EXPECT_EQ(names_of({"right", "sum", "left", "conv", "cast"}), other);
}

/// The nodes that quantize_dynamic writes for a Conv with a bias: the first reshapes the bias.
TEST(OnnxCut, ADynamicallyQuantizedFileNamesItsCureWhateverStandsFirst) {
  for (const bool bias : {false, true}) {
    ModelBuilder model;
    model.weight("b", {8});
    model.weight("w", {8, 3, 3, 3});
    model.integers("as_image", {1, 8, 1, 1});
    if (bias) model.node("Reshape", {"b", "as_image"}, "shift");
    model.node("DynamicQuantizeLinear", {"image"}, "codes").named("dynamic").output("scale").output("zero");
    model.node("ConvInteger", {"codes", "w", "zero"}, "sums");
    model.node("Cast", {"sums"}, "reals").integer("to", 1);
    model.node("Mul", {"reals", "scale"}, "y");
    if (bias) model.node("Add", {"y", "shift"}, "z");
    const std::string message = refusal(model, bias ? "z" : "y");
    EXPECT_TRUE(
        message.starts_with("test.onnx: node 'dynamic' (DynamicQuantizeLinear): a dynamically quantized network"))
        << message;
    EXPECT_NE(message.find("onnxruntime.quantization.quantize_static("), std::string::npos) << message;
  }
}

/// tests/net/onnx/qdq_advice_test.py does what is said here.
TEST(OnnxCut, WhatPreparesTheImagesIsLeftToTheProgram) {
  const auto refusal_of = [](const std::string& op, const std::vector<std::string>& inputs, const std::string& from,
                             const std::string& last_of) {
    ModelBuilder model;
    model.weight("w", {8, 3, 3, 3});
    model.weight("last", {8, 8, 3, 3});
    model.scalar("low", 20);
    model.node("Conv", {from, "w"}, "y");
    model.node(op, inputs, "made").named("odd");
    model.node("Conv", {last_of, "last"}, "z");
    return refusal(model, "z");
  };
  const std::string advice =
      "; it prepares the images: leave it to your program, with what stands before it, and begin the file behind it: "
      "onnx.utils.extract_model(\"test.onnx\", \"NEW.onnx\", [\"made\"], [\"z\"])";
  EXPECT_EQ(
      refusal_of("Pow", {"image", "low"}, "made", "y"),
      "test.onnx: node 'odd' (Pow): expected the exponent 1, 2 or 3, one for all; octet has no function for others" +
          advice);
  const std::string pow = refusal_of("Pow", {"y", "low"}, "image", "made");
  EXPECT_TRUE(
      pow.ends_with("; change it where the network is made, to a form that src/net/onnx/README.md lists, and "
                    "export it again"))
      << pow;
}

TEST(OnnxCut, OneValueIsGivenOnce) {
  ModelBuilder model = detector();
  model.node("Identity", {"p3_boxes"}, "same");
  EXPECT_EQ(error_of([&] {
              imported(model.bytes(std::vector<std::string>{"p3_boxes", "p3_scores", "p3_boxes"}));
            }),
            "test.onnx: outputs 'p3_boxes' and 'p3_boxes' are one value, which octet gives once: name one of them for "
            "both, in a recipe model.outputs: [\"p3_boxes\", \"p3_scores\"]; octet inspect test.onnx --outputs "
            "p3_boxes,p3_scores");
  ModelBuilder twins = detector();
  twins.node("Identity", {"p3_boxes"}, "same");
  const std::string message = error_of([&] {
    imported(twins.bytes(std::vector<std::string>{"same", "p3_scores", "p3_boxes"}));
  });
  EXPECT_NE(message.find("outputs 'same' and 'p3_boxes' are one value"), std::string::npos) << message;
  EXPECT_NE(message.find("model.outputs: [\"same\", \"p3_scores\"]"), std::string::npos) << message;
}

TEST(OnnxCut, NamesThatAreNoValuesAreRefused) {
  ModelBuilder model = detector();
  const std::string bytes = model.bytes("boxes");
  const auto chosen = [&](const std::vector<std::string>& outputs) {
    return error_of([&] { imported(bytes, outputs); });
  };
  for (const char* name : {"p5", "image", "stem.weight", ""})
    EXPECT_NE(chosen({"p3", name}).find(std::string("no node gives '") + name + "', which is to be an output"),
              std::string::npos)
        << chosen({"p3", name});
  EXPECT_NE(chosen({"p3", "p3"}).find("'p3' is to be an output twice: name it once"), std::string::npos);
  const std::string behind = chosen({"rows"});  // octet has none of it, and no other end is proposed
  EXPECT_NE(behind.find("node of output 'rows' (Concat)"), std::string::npos) << behind;
  EXPECT_EQ(behind.find("model.outputs"), std::string::npos) << behind;
}

}  // namespace
}  // namespace octet
