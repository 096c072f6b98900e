// SPDX-License-Identifier: Apache-2.0
// model.weights of another network: refused where names alone tell it.
#include <gtest/gtest.h>

#include "tests/trainers/tiny.h"
#include "trainers/run/run.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using testing_trainers::message_of;

TEST(StartingWeights, OfADeeperNetworkAreRefused) {
  const Folder folder("deeper");
  const std::string file = folder.path() + "/resnet20.safetensors";
  const auto opened = [&](const std::string& name) {
    return open_run(
        parse_recipe("data: {format: synthetic}\nmodel: {name: " + name + ", weights: " + file + "}\n", "r.yaml", {}),
        {folder.path()});
  };
  const octet::Run deeper = opened("resnet20");
  save_weights(initial_weights(deeper.graph, 1), file);
  EXPECT_EQ(starting_weights(deeper).size(), initial_weights(deeper.graph, 1).size());
  // Every tensor of resnet8 is there, in its shape.
  const std::string message = message_of(ExitCode::data, [&] { starting_weights(opened("resnet8")); });
  EXPECT_NE(message.find(file + ": 60 tensors no layer of resnet8 uses, first 'layer1.1.bn1.bias'"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace octet
