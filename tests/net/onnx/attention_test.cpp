// SPDX-License-Identifier: Apache-2.0
// Attention as exporters write it, and what of it is refused.
#include <ATen/ATen.h>

#include <functional>
#include <limits>

#include "tests/error_of.h"
#include "tests/net/onnx/outputs.h"

namespace octet {
namespace {

using namespace test;

constexpr int kHeads = 2, kKeys = 3, kValues = 4, kEach = 2 * kKeys + kValues, kHeight = 4, kWidth = 5;
const std::vector<int64_t> kImage = {kHeads * kEach, kHeight, kWidth};

/// The image's channels are queries, keys and values of each head, one head after the other: as in YOLO's C2PSA.
at::Tensor expected(const at::Tensor& x, double scale) {
  const auto parts =
      x.reshape({x.size(0), kHeads, kEach, kHeight * kWidth}).split_with_sizes({kKeys, kKeys, kValues}, 2);
  const at::Tensor shares = (parts[0].transpose(2, 3).matmul(parts[1]) * scale).softmax(-1);
  return parts[2].matmul(shares.transpose(2, 3)).reshape({x.size(0), kHeads * kValues, kHeight, kWidth});
}

/// Up to the scores [N, heads, queries, keys] "s", not yet scaled.
void scores(ModelBuilder& model, bool scaled_before = false, int64_t batch = -1, int64_t pixels = kHeight * kWidth) {
  model.integers("heads", {batch, kHeads, kEach, pixels});
  model.integers("sizes", {kKeys, kKeys, kValues});
  model.integers("to image", {-1, kHeads * kValues, kHeight, kWidth});
  model.integers("to image of v", {0, kHeads * kValues, kHeight, kWidth});
  model.scalar("half", 0.5f);
  model.node("Reshape", {"image", "heads"}, "qkv");
  model.node("Split", {"qkv", "sizes"}, "q").output("k").output("v").integer("axis", 2);
  if (scaled_before) model.node("Mul", {"q", "half"}, "qs");
  model.node("Transpose", {scaled_before ? "qs" : "q"}, "qt").ints("perm", {0, 1, 3, 2});
  model.node("MatMul", {"qt", "k"}, "s");
}

/// From the shares "p" [N, heads, queries, keys] on.
void mix(ModelBuilder& model) {
  model.node("Transpose", {"p"}, "pt").ints("perm", {0, 1, 3, 2});
  model.node("MatMul", {"v", "pt"}, "m");
  model.node("Reshape", {"m", "to image"}, "mixed");
  model.node("Reshape", {"v", "to image of v"}, "values");
  model.node("Add", {"mixed", "values"}, "y");
}

at::Tensor values_of(const at::Tensor& x) {
  return x.reshape({x.size(0), kHeads, kEach, -1})
      .narrow(2, 2 * kKeys, kValues)
      .reshape({x.size(0), -1, kHeight, kWidth});
}

TEST(OnnxAttention, AsBothExportersWriteIt) {
  const at::Tensor x = images(kHeads * kEach, kHeight, kWidth);
  for (const bool before : {false, true}) {
    ModelBuilder model(kImage);
    scores(model, before);
    if (!before) model.node("Mul", {"s", "half"}, "scaled");
    model.node("Softmax", {before ? "s" : "scaled"}, "p").integer("axis", -1);
    mix(model);
    const ImportedNetwork network = imported(model.bytes("y"));
    expect_close(outputs(network, x), expected(x, 0.5) + values_of(x));
    int products = 0;
    for (const Node& node : network.graph.nodes) products += node.op == Op::matmul;
    EXPECT_EQ(products, 2);  // the one without its scale is gone
  }
}

TEST(OnnxAttention, OpenDimensionsAndDivision) {
  const at::Tensor x = images(kHeads * kEach, kHeight, kWidth);
  ModelBuilder model(kImage);
  scores(model, false, 0, -1);
  model.scalar("two", 2);
  model.node("Div", {"s", "two"}, "scaled");
  model.node("Softmax", {"scaled"}, "p").integer("axis", 3);
  mix(model);
  expect_close(outputs(imported(model.bytes("y")), x), expected(x, 0.5) + values_of(x));
}

/// The factor belongs to one reader of the product alone, who may read it turned.
TEST(OnnxAttention, AProductMayBeReadWithAndWithoutAFactor) {
  const at::Tensor x = images(kHeads * kEach, kHeight, kWidth);
  const auto parts = x.reshape({x.size(0), kHeads, kEach, -1}).split_with_sizes({kKeys, kKeys, kValues}, 2);
  const at::Tensor unscaled = parts[2].matmul(parts[1].transpose(2, 3).matmul(parts[0]));
  for (const bool turned : {false, true}) {
    ModelBuilder model(kImage);
    scores(model);
    model.node("Transpose", {"s"}, "st").ints("perm", {0, 1, 3, 2});
    model.node("Mul", {turned ? "st" : "s", "half"}, "scaled");
    model.node("Softmax", {"scaled"}, "p").integer("axis", turned ? 2 : 3);
    if (!turned) model.node("Transpose", {"p"}, "pt").ints("perm", {0, 1, 3, 2});
    model.node("MatMul", {"v", turned ? "p" : "pt"}, "m");
    model.node("MatMul", {"v", "st"}, "u");
    model.node("Reshape", {"m", "to image"}, "mixed");
    model.node("Reshape", {"u", "to image"}, "unscaled");
    model.node("Add", {"mixed", "unscaled"}, "y");
    expect_close(outputs(imported(model.bytes("y")), x),
                 expected(x, 0.5) + unscaled.reshape({x.size(0), kHeads * kValues, kHeight, kWidth}));
  }
}

/// Nor may the factor go into a product that a second Transpose turns for somebody else.
TEST(OnnxAttention, AProductMayBeTurnedTwiceAndScaledOnce) {
  const at::Tensor x = images(kHeads * kEach, kHeight, kWidth);
  ModelBuilder model(kImage);
  scores(model);
  model.node("Transpose", {"s"}, "st").ints("perm", {0, 1, 3, 2});
  model.node("Transpose", {"s"}, "st2").ints("perm", {0, 1, 3, 2});
  model.node("Mul", {"st", "half"}, "scaled");
  model.node("Softmax", {"scaled"}, "p").integer("axis", 2);
  model.node("MatMul", {"v", "p"}, "m");
  model.node("MatMul", {"v", "st2"}, "u");
  model.node("Reshape", {"m", "to image"}, "mixed");
  model.node("Reshape", {"u", "to image"}, "unscaled");
  model.node("Add", {"mixed", "unscaled"}, "y");
  const auto parts = x.reshape({x.size(0), kHeads, kEach, -1}).split_with_sizes({kKeys, kKeys, kValues}, 2);
  const at::Tensor unscaled = parts[2].matmul(parts[1].transpose(2, 3).matmul(parts[0]));
  expect_close(outputs(imported(model.bytes("y")), x),
               expected(x, 0.5) + unscaled.reshape({x.size(0), kHeads * kValues, kHeight, kWidth}));
}

/// Nor does what lies between a product and its factor count.
TEST(OnnxAttention, AFactorBehindAnIdentity) {
  const at::Tensor x = images(kHeads * kEach, kHeight, kWidth);
  ModelBuilder model(kImage);
  scores(model);
  model.node("Identity", {"s"}, "same");
  model.node("Mul", {"same", "half"}, "scaled");
  model.node("Softmax", {"scaled"}, "p").integer("axis", 3);
  mix(model);
  expect_close(outputs(imported(model.bytes("y")), x), expected(x, 0.5) + values_of(x));
}

/// The product is turned, then scaled.
TEST(OnnxAttention, AFactorBehindATranspose) {
  const at::Tensor x = images(kHeads * kEach, kHeight, kWidth);
  ModelBuilder model(kImage);
  scores(model);
  model.node("Transpose", {"s"}, "st").ints("perm", {0, 1, 3, 2});
  model.node("Mul", {"st", "half"}, "scaled");
  model.node("Softmax", {"scaled"}, "pt").integer("axis", 2);
  model.node("MatMul", {"v", "pt"}, "m");
  model.node("Reshape", {"m", "to image"}, "y");
  expect_close(outputs(imported(model.bytes("y")), x), expected(x, 0.5));
}

/// Three parts of ten channels, the last one smaller, as opset 18 cuts them.
TEST(OnnxAttention, PartsOfASplitWithoutSizes) {
  const auto split = [](int64_t count) {
    ModelBuilder model(kImage, 18);
    model.integers("heads", {-1, kHeads, kEach, kHeight * kWidth});
    model.integers("to image", {-1, kHeads * 2, kHeight, kWidth});
    model.node("Reshape", {"image", "heads"}, "qkv");
    model.node("Split", {"qkv"}, "q").output("k").output("v").integer("axis", 2).integer("num_outputs", count);
    model.node("Reshape", {"v", "to image"}, "y");
    return model.bytes("y");
  };
  const at::Tensor x = images(kHeads * kEach, kHeight, kWidth);
  const at::Tensor last = x.reshape({x.size(0), kHeads, kEach, -1}).narrow(2, 8, 2);
  expect_close(outputs(imported(split(3)), x), last.reshape({x.size(0), -1, kHeight, kWidth}));
  EXPECT_NE(error_of([&] { imported(split(2)); }).find("10 channels into 3 outputs of [4, 4, 2]"), std::string::npos);
}

/// The root of the scale at queries and keys each, as PyTorch writes scaled_dot_product_attention.
TEST(OnnxAttention, FactorsOfQueriesAndKeys) {
  const at::Tensor x = images(kHeads * kEach, kHeight, kWidth);
  ModelBuilder model(kImage);
  scores(model, /*scaled_before=*/true);
  model.node("Mul", {"k", "half"}, "ks");
  model.node("MatMul", {"qt", "ks"}, "both");
  model.node("Softmax", {"both"}, "p").integer("axis", 3);
  mix(model);
  expect_close(outputs(imported(model.bytes("y")), x), expected(x, 0.25) + values_of(x));
}

/// Keys by queries, and a softmax over the keys, which are not last.
TEST(OnnxAttention, KeysTimesQueries) {
  const at::Tensor x = images(kHeads * kEach, kHeight, kWidth);
  ModelBuilder model(kImage);
  scores(model);
  model.node("Transpose", {"k"}, "kt").ints("perm", {0, 1, 3, 2});
  model.node("MatMul", {"kt", "q"}, "st");
  model.node("Softmax", {"st"}, "pt").integer("axis", 2);
  model.node("MatMul", {"v", "pt"}, "m");
  model.node("Reshape", {"m", "to image"}, "y");
  expect_close(outputs(imported(model.bytes("y")), x), expected(x, 1));
}

/// One head needs three dimensions only; pixels come first throughout.
TEST(OnnxAttention, OneHead) {
  const at::Tensor x = images(6, 3, 2);
  ModelBuilder model({6, 3, 2});
  model.integers("row", {-1, 6, 6});
  model.integers("to image", {-1, 6, 3, 2});
  model.node("Reshape", {"image", "row"}, "r");
  model.node("Transpose", {"r"}, "t").ints("perm", {0, 2, 1});
  model.node("MatMul", {"t", "r"}, "s");
  model.node("Softmax", {"s"}, "p");
  model.node("MatMul", {"p", "t"}, "m");
  model.node("Transpose", {"m"}, "mt").ints("perm", {0, 2, 1});
  model.node("Reshape", {"mt", "to image"}, "y");
  const at::Tensor row = x.flatten(2), pixels = row.transpose(1, 2);
  const at::Tensor mixed = pixels.matmul(row).softmax(-1).matmul(pixels);
  expect_close(outputs(imported(model.bytes("y")), x), mixed.transpose(1, 2).reshape({-1, 6, 3, 2}));
}

TEST(OnnxAttention, WhatItIsNotIsRefusedByName) {
  const auto refusal = [](const std::function<void(ModelBuilder&)>& rest) {
    ModelBuilder model(kImage);
    scores(model);
    rest(model);
    return error_of([&] { imported(model.bytes("y")); });
  };
  const auto expect_refusal = [&](const std::string& what, const std::function<void(ModelBuilder&)>& rest) {
    EXPECT_NE(refusal(rest).find(what), std::string::npos) << refusal(rest);
  };
  expect_refusal("output 'y': is in heads", [](ModelBuilder& m) { m.node("Softmax", {"s"}, "y"); });
  expect_refusal("input 'q' is in heads, with its pixels in a row",
                 [](ModelBuilder& m) { m.node("Relu", {"q"}, "y"); });
  expect_refusal("(MatMul): mixes channels by channels", [](ModelBuilder& m) { m.node("MatMul", {"q", "qt"}, "y"); });
  expect_refusal("(MatMul): of two activations; expected [N, heads", [](ModelBuilder& m) {
    m.node("MatMul", {"s", "image"}, "y");
  });
  expect_refusal("(Softmax): over axis 3 of heads [.., channels, pixels]; expected the channels", [](ModelBuilder& m) {
    m.node("Softmax", {"q"}, "p").integer("axis", 3);
    m.node("Reshape", {"p", "to image"}, "y");
  });
  expect_refusal("expected perm [0, 1, 3, 2]", [](ModelBuilder& m) {
    m.node("Transpose", {"q"}, "y").ints("perm", {0, 2, 1, 3});
  });
  expect_refusal("expected the image again, [N, 6, 4, 5]", [](ModelBuilder& m) {
    m.integers("other", {-1, 6, 5, 4});
    m.node("Reshape", {"q", "other"}, "y");
  });
  expect_refusal("along axis 1 of heads [.., channels, pixels]; expected 2", [](ModelBuilder& m) {
    m.node("Split", {"qkv", "sizes"}, "y").integer("axis", 1);
  });
  expect_refusal("10 channels into 1 outputs of [3]", [](ModelBuilder& m) {
    m.integers("three", {3});
    m.node("Split", {"qkv", "three"}, "y").integer("axis", 2);
  });
  expect_refusal("10 channels into 2 outputs of [1, 9223372036854775807]", [](ModelBuilder& m) {
    m.integers("parts", {1, std::numeric_limits<int64_t>::max()});
    m.node("Split", {"qkv", "parts"}, "y").output("z").integer("axis", 2);
  });
  expect_refusal("expected a positive factor", [](ModelBuilder& m) {
    m.scalar("minus", -1);
    m.node("Mul", {"qt", "minus"}, "n");
    m.node("MatMul", {"n", "k"}, "y");
  });
  expect_refusal("[N, heads, C / heads, H * W]", [](ModelBuilder& m) {
    m.integers("other", {-1, 3, 7, 20});
    m.node("Reshape", {"image", "other"}, "y");
  });
  expect_refusal("[N, heads, C / heads, H * W]", [](ModelBuilder& m) {
    m.integers("other", {-1, kHeads, kEach, kHeight * kWidth - 1});
    m.node("Reshape", {"image", "other"}, "y");
  });
}

}  // namespace
}  // namespace octet
