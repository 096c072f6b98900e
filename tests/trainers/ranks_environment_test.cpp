// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "src/base/error.h"
#include "trainers/parallel/environment.h"

namespace octet {
namespace {

using Variables = std::map<std::string, std::string>;

Lookup in(const Variables& variables) {
  return [variables](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

std::string refused(const Variables& variables) {
  try {
    read_rank_environment(in(variables));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "";
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "h0"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

TEST(RankEnvironment, TorchrunsVariables) {
  const RankEnvironment ranks = read_rank_environment(in(kTorchrun)).value();
  EXPECT_EQ(ranks.rank, 5);
  EXPECT_EQ(ranks.size, 8);
  EXPECT_EQ(ranks.local_rank, 1);
  EXPECT_EQ(ranks.local_size, 4);
  EXPECT_EQ(ranks.address, "h0");
  EXPECT_EQ(ranks.port, 29500);
  EXPECT_TRUE(ranks.store_is_there);
}

TEST(RankEnvironment, OneProcessIsAlone) {
  EXPECT_FALSE(read_rank_environment(in({})));
  EXPECT_FALSE(read_rank_environment(in({{"WORLD_SIZE", "1"}, {"RANK", "0"}})));
}

TEST(RankEnvironment, WithoutLocalRankOneHostIsMeant) {
  const Variables variables{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}};
  const RankEnvironment ranks = read_rank_environment(in(variables)).value();
  EXPECT_EQ(ranks.local_rank, 1);
  EXPECT_EQ(ranks.local_size, 2);
  EXPECT_FALSE(ranks.store_is_there);
}

TEST(RankEnvironment, WhatIsMissingOrNoNumberIsNamed) {
  const auto without = [](const char* name) {
    Variables variables = kTorchrun;
    variables.erase(name);
    return refused(variables);
  };
  const auto with = [](const char* name, const char* value) {
    Variables variables = kTorchrun;
    variables[name] = value;
    return refused(variables);
  };
  EXPECT_EQ(without("RANK").rfind("WORLD_SIZE is set, but RANK is not", 0), 0u);
  EXPECT_EQ(without("MASTER_ADDR").rfind("WORLD_SIZE is set, but MASTER_ADDR is not", 0), 0u);
  EXPECT_EQ(with("RANK", "8"), "RANK='8': a whole number from 0 to 7 is needed");
  EXPECT_EQ(with("LOCAL_RANK", "4"), "LOCAL_RANK='4': a whole number from 0 to 3 is needed");
  EXPECT_EQ(with("WORLD_SIZE", "two"), "WORLD_SIZE='two': a whole number from 1 to 65536 is needed");
  EXPECT_EQ(with("MASTER_PORT", "70000"), "MASTER_PORT='70000': a whole number from 1 to 65535 is needed");
}

TEST(RankEnvironment, EachProcessHasAGpuOfItsOwn) {
  const RankEnvironment ranks = read_rank_environment(in(kTorchrun)).value();
  EXPECT_EQ(own_gpu(ranks, std::nullopt), "1");
  EXPECT_EQ(own_gpu(ranks, "4,5,6,7"), "5");
  EXPECT_EQ(own_gpu(ranks, "6"), "6");  // srun gave it one
  EXPECT_THROW(own_gpu(ranks, "0,1,2"), Error);
}

}  // namespace
}  // namespace octet
