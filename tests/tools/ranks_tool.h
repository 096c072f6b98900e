// SPDX-License-Identifier: Apache-2.0
// octet train with several processes on this machine's CPU.
#pragma once

#include <string>
#include <vector>

#include "tests/tools/program.h"
#include "tests/tools/tiny_recipe.h"

namespace octet::test {

class RanksTool : public ToolTest {
 protected:
  void SetUp() override { write("tiny.yaml", kTinyRecipe); }
  Answer train(std::vector<std::string> more, const Start& start = {}) const {
    std::vector<std::string> words = {"train", path("tiny.yaml"), "--device", "cpu",
                                      "--set", "qat.epochs=2",    "--set",    "qat.float_control=true"};
    words.insert(words.end(), more.begin(), more.end());
    return octet(words, start);
  }
};

}  // namespace octet::test
