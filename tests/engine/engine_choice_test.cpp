// Names of engines become engines that this machine runs, or an error that says why not and what to do.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/common/error.h"
#include "src/engine/engine_choice.h"

namespace octet {
namespace {

using Names = std::vector<std::string>;

Names exact_names() {
  Names names;
  for (const Engine* engine : exact_engines()) names.emplace_back(engine->name());
  return names;
}

void expect_refusal(const Names& engines, EngineDevices devices, const std::vector<std::string>& parts) {
  try {
    resolve_engines(engines, devices);
    FAIL() << "resolved";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what() << "\nlacks: " << part;
    }
  }
}

TEST(ResolveEngines, AutoIsEveryExactEngineReferenceLast) {
  EXPECT_EQ(resolve_engines({"auto"}), exact_names());
  EXPECT_EQ(resolve_engines({"auto"}).back(), "reference");
  EXPECT_EQ(resolve_engines({"auto"}, EngineDevices::cpu), (Names{"cpu", "reference"}));
  EXPECT_EQ(preferred_engine().name(), exact_names().front());
  EXPECT_EQ(preferred_engine(EngineDevices::cpu).name(), "cpu");
}

TEST(ResolveEngines, NamesStayInOrderAndAutoNamesNoneTwice) {
  EXPECT_EQ(resolve_engines({"reference", "cpu"}), (Names{"reference", "cpu"}));
  EXPECT_EQ(resolve_engines({"reference", "auto"}, EngineDevices::cpu), (Names{"reference", "cpu"}));
  EXPECT_EQ(resolve_engines({"auto", "cpu"}, EngineDevices::cpu), (Names{"reference", "cpu"}));
  EXPECT_EQ(resolve_engines({}), Names{});
}

TEST(ResolveEngines, WhatCannotRunIsRefusedWithReasonAndCure) {
  expect_refusal({"abacus"}, EngineDevices::any, {"abacus", "cuda, cudnn, cutlass, cpu, reference"});
  expect_refusal({"cpu", "cuda"}, EngineDevices::cpu, {"engine cuda", "--device cpu", "evaluate.engines=[auto]"});
  expect_refusal({"cpu", "cudnn"}, EngineDevices::cpu, {"engine cudnn", "--device cpu", "evaluate.engines=[auto]"});
  const Support cuda = find_engine("cuda").available();
  if (!cuda.ok)
    expect_refusal({"cpu", "cuda"}, EngineDevices::any, {"engine cuda", cuda.reason, "evaluate.engines=[auto]"});
}

}  // namespace
}  // namespace octet
