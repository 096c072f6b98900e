// SPDX-License-Identifier: Apache-2.0
// Where a network ends: its outputs may be chosen, and what is refused behind the last layer says where.
#include "src/base/error.h"
#include "tests/error_of.h"
#include "tests/onnx/imported.h"

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
  EXPECT_NE(chosen({"p3", "p3"}).find("'p3' is to be an output twice"), std::string::npos);
  const std::string behind = chosen({"rows"});  // octet has none of it, and no other end is proposed
  EXPECT_NE(behind.find("node of output 'rows' (Concat)"), std::string::npos) << behind;
  EXPECT_EQ(behind.find("model.outputs"), std::string::npos) << behind;
}

}  // namespace
}  // namespace octet
