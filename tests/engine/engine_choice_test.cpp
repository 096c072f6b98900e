// SPDX-License-Identifier: Apache-2.0
// Names of engines become engines that this machine runs, or an error that says why not and what to do.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/engine/engine.h"

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

TEST(ParseEngine, ANumberBehindTheColonIsTheGpu) {
  for (const char* name : {"cuda", "cudnn", "cutlass"}) {
    EXPECT_EQ(parse_engine(name).engine, &find_engine(name));
    EXPECT_EQ(parse_engine(name).gpu, kCurrentGpu);
    EXPECT_EQ(parse_engine(std::string(name) + ":0").gpu, 0);
    EXPECT_EQ(parse_engine(std::string(name) + ":12").engine, &find_engine(name));
    EXPECT_EQ(parse_engine(std::string(name) + ":12").gpu, 12);
  }
  EXPECT_EQ(parse_engine("cpu").engine, &find_engine("cpu"));
}

TEST(ParseEngine, WhatIsNoNumberIsRefusedWithTheCure) {
  const auto refusal = [](const std::string& name) -> std::string {
    try {
      parse_engine(name);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return error.what();
    }
    return "";
  };
  for (const char* wrong :
       {"cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda: 1", "cuda:+1", "cuda:99999999999", "cuda:0:1"})
    EXPECT_EQ(refusal(wrong), "engine '" + std::string(wrong) +
                                  "': behind the colon stands the number of a GPU, 0 for the first: cuda:0");
  for (const char* wrong : {"cpu:0", "reference:1"})
    EXPECT_NE(refusal(wrong).find("runs on no GPU and takes no number"), std::string::npos) << refusal(wrong);
  for (const char* wrong : {"abacus:0", ":0", "auto:1", ""})
    EXPECT_NE(refusal(wrong).find("unknown engine '"), std::string::npos) << refusal(wrong);
}

}  // namespace
}  // namespace octet
