// SPDX-License-Identifier: Apache-2.0
// Tables of functions behind layers with BatchNorm: their values are those of the int8 tables, their slopes those of
// the functions, and only lookups that nothing else needs apart are joined.
#include "src/train/qat/joined_operators.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/quant/node_constants.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

constexpr QParams kX{0.05f, 120, 0, 255}, kY{0.03f, 9, 0, 255}, kFewX{0.7f, 0, -8, 7}, kFewY{0.4f, 1, 0, 15};
constexpr FunctionKind kFunctions[] = {FunctionKind::silu,       FunctionKind::hard_swish, FunctionKind::hard_sigmoid,
                                       FunctionKind::sigmoid,    FunctionKind::tanh,       FunctionKind::gelu,
                                       FunctionKind::leaky_relu, FunctionKind::mish,       FunctionKind::softplus,
                                       FunctionKind::elu};

TEST(FunctionTables, ValuesAreThoseOfTheInt8Table) {
  for (const FunctionKind function : kFunctions) {
    for (const auto& [x, y] : {std::pair{kX, kY}, {kFewX, kFewY}}) {
      const Node lookup{.op = Op::lookup, .function = {.kind = function}};
      const kernels::FunctionTable table = function_table(lookup, x, y);
      const std::vector<uint8_t> codes =
          lookup_tables(lookup.function, {FunctionScale()}, x, y, {y.quant_min, y.quant_max});
      for (int32_t code = x.quant_min; code <= x.quant_max; ++code)
        EXPECT_EQ(table.value[code - x.quant_min], dequantize(codes[static_cast<uint8_t>(code)], y)) << code;
    }
  }
}

TEST(FunctionTables, SlopesAreTheFunctionsWhereTheQuantizerPasses) {
  for (const FunctionKind function : kFunctions) {
    const Node lookup{.op = Op::lookup, .function = {.kind = function}};
    const kernels::FunctionTable table = function_table(lookup, kX, kY);
    int passing = 0;
    for (int32_t code = kX.quant_min; code <= kX.quant_max; ++code) {
      const double x = dequantize(code, kX), step = 1e-5;
      const double left = (evaluate(lookup.function, x) - evaluate(lookup.function, x - step)) / step,
                   right = (evaluate(lookup.function, x + step) - evaluate(lookup.function, x)) / step;
      const double code_of_y = std::rint(static_cast<float>(evaluate(lookup.function, x)) / kY.scale) + kY.zero_point;
      const float slope = table.slope[code - kX.quant_min];
      if (code_of_y < kY.quant_min || code_of_y > kY.quant_max) {
        EXPECT_EQ(slope, 0) << code;
      } else {
        ++passing;  // at a corner the slope is either side's
        EXPECT_LT(std::min(std::fabs(slope - left), std::fabs(slope - right)), 1e-4) << x;
      }
    }
    EXPECT_GT(passing, 100);
  }
}

TEST(FunctionTables, AnActivationOfTheLookupClampsAndMasks) {
  const Node lookup{.op = Op::lookup, .function = {.kind = FunctionKind::tanh}, .activation = Activation::relu};
  const kernels::FunctionTable table = function_table(lookup, kX, kY);
  EXPECT_EQ(table.value[0], 0);
  EXPECT_EQ(table.slope[0], 0);
  EXPECT_NEAR(table.value[140], std::tanh(1.0), 0.016);
  EXPECT_GT(table.slope[140], 0.4f);
}

TEST(FunctionTables, LookupsThatAloneReadALayerJoinIt) {
  const auto joined = [](const Prepared& prepared) {
    const FunctionTables tables(prepared, at::kCPU);
    int count = 0;
    for (int n = 0; n < static_cast<int>(prepared.graph.nodes.size()); ++n) {
      if (tables.lookup_of(n) < 0) continue;
      ++count;
      EXPECT_EQ(prepared.graph.nodes[tables.lookup_of(n)].inputs[0], n);
      EXPECT_FALSE(prepared.graph.nodes[n].batch_norm.empty());
    }
    EXPECT_EQ(tables.any(), count > 0);
    return count;
  };
  const Graph efficient = fuse(build_model(test::family("efficientnet_b0", 32)));
  EXPECT_EQ(joined(prepare(efficient, {})),
            33);  // and not the 32 of squeeze-and-excite, whose layers have no BatchNorm
  EXPECT_EQ(joined(prepare(fuse(test::resnet8()), {})), 0);
  Graph looked_at = efficient;  // by the user too
  for (int n = 0; n < static_cast<int>(looked_at.nodes.size()); ++n) {
    if (looked_at.nodes[n].op != Op::lookup) continue;
    looked_at.outputs.push_back(looked_at.nodes[n].inputs[0]);
    break;
  }
  EXPECT_EQ(joined(prepare(looked_at, {})), 32);
}

/// The tables of a network, and its ranges where they move.
struct MovingRanges {
  Prepared prepared = prepare(fuse(build_model(test::family("efficientnet_b0", 32))), {});
  FunctionTables tables{prepared, at::kCPU};
  std::vector<QParams> edges = prepared.range;
  int layer = 0, reads = 0;

  MovingRanges() {
    while (tables.lookup_of(layer) < 0) ++layer;
    move(0.05f);
  }
  void move(float scale) {
    for (QParams& q : edges) q.scale = scale;
  }
  /// Refreshes the tables, as a walk that reads them.
  void refresh() {
    tables.refresh([this] {
      ++reads;
      return edges;
    });
  }
  void expect_tables_of_now() const {
    const int lookup = tables.lookup_of(layer);
    const kernels::FunctionTable want = function_table(prepared.graph.nodes[lookup], edges[layer], edges[lookup]);
    for (int i = 0; i < 256; ++i) {
      EXPECT_EQ(tables.of(layer)->value[i], want.value[i]);
      EXPECT_EQ(tables.of(layer)->slope[i], want.slope[i]);
    }
  }
};

TEST(FunctionTables, AreThoseOfTheRangesThatWereSet) {
  MovingRanges now;
  now.tables.set(now.edges);
  now.refresh();
  now.expect_tables_of_now();
  now.move(0.02f);
  now.tables.set(now.edges);  // for a walk that may be recorded, and must not read
  now.expect_tables_of_now();
  now.refresh();
  EXPECT_EQ(now.reads, 1) << "the first walk alone";
}

/// A recorded step that observes makes no hooks: only ranges_move() tells, also after a validation has set the ranges.
TEST(FunctionTables, FollowRangesThatMovedAfterTheyWereSet) {
  MovingRanges now;
  now.refresh();
  now.tables.ranges_move();
  now.tables.set(now.edges);
  now.tables.ranges_move();
  now.move(0.02f);
  now.refresh();
  EXPECT_EQ(now.reads, 2);
  now.expect_tables_of_now();
}

TEST(FunctionTables, AreNotMadeWhereNothingReadsThem) {
  MovingRanges now;
  now.tables.set({});  // for which no table can be made
  now.refresh();
  EXPECT_EQ(now.reads, 1);
  now.expect_tables_of_now();
}

}  // namespace
}  // namespace octet
