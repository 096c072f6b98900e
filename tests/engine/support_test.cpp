// SPDX-License-Identifier: Apache-2.0
// What every engine refuses before it compiles.
#include "src/engine/support.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/engine/random_network.h"

namespace octet::test {
namespace {

/// Runs nodes of some kinds.
class PartialEngine final : public Engine {
 public:
  PartialEngine(std::string name, std::vector<Int8Op> runs) : name_(std::move(name)), runs_(std::move(runs)) {}
  std::string_view name() const override { return name_; }
  Support available() const override { return {true, ""}; }
  Support supports(const Int8Graph& graph, int node) const override {
    const Int8Op op = graph.nodes[node].op;
    for (const Int8Op run : runs_) {
      if (run == op) return {true, ""};
    }
    return {false, name_ + " has no " + std::string(int8_op_name(op))};
  }
  std::unique_ptr<Program> compile(const Int8Graph&, const CompileOptions&) const override { return nullptr; }

 private:
  std::string name_;
  std::vector<Int8Op> runs_;
};

/// input > conv2d > global_avg_pool > what makes logits of it.
Int8Graph small_graph() {
  Random random(1);
  NetworkBuilder network(random, {3, 16, 16});
  return network.finish(network.global_avg_pool(network.convolution(0)));
}

const std::vector<Int8Op> kAll = {Int8Op::input, Int8Op::conv2d, Int8Op::linear, Int8Op::global_avg_pool,
                                  Int8Op::flatten};

std::string refusal(const Engine& engine, const Int8Graph& graph, const Fallback& fallback = {}) {
  try {
    check_compile(engine, graph, {}, fallback);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::promise);
    return error.what();
  }
  return "";
}

TEST(CheckCompile, NamesTheFirstNodeTheReasonAndTheCure) {
  const Int8Graph graph = small_graph();
  const PartialEngine pool("half", {Int8Op::global_avg_pool});
  const std::string what = "engine half cannot run node '" + graph.nodes[0].name + "': half has no input";
  EXPECT_EQ(refusal(pool, graph), what);
  EXPECT_EQ(refusal(pool, graph, {nullptr, "name a fallback"}), what + "; name a fallback");
}

TEST(CheckCompile, AFallbackRunsTheRestButNotEverything) {
  const Int8Graph graph = small_graph();
  const PartialEngine all("whole", kAll), pool("half", {Int8Op::global_avg_pool}), none("empty", {});
  EXPECT_EQ(refusal(pool, graph, {&all, ""}), "");
  int conv = 0;
  while (graph.nodes[conv].op != Int8Op::conv2d) ++conv;
  EXPECT_EQ(refusal(none, graph, {&all, ""}), "engine empty runs no node of " + graph.name +
                                                  ", engine whole would run them all: node '" + graph.nodes[conv].name +
                                                  "': empty has no conv2d");
  EXPECT_NE(refusal(none, graph, {&pool, ""}).find("cannot run node '" + graph.nodes[0].name), std::string::npos);
}

}  // namespace
}  // namespace octet::test
