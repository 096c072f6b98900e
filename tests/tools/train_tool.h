// SPDX-License-Identifier: Apache-2.0
// octet train on a tiny synthetic set.
#pragma once

#include <string>
#include <vector>

#include "src/recipe/run.h"
#include "tests/tools/program.h"
#include "tests/tools/tiny_recipe.h"

namespace octet::test {

class Train : public ToolTest {
 protected:
  void SetUp() override { write("tiny.yaml", kTinyRecipe); }
  Answer train(const std::string& run, std::vector<std::string> more = {}, const Start& start = {}) const {
    std::vector<std::string> words = {"train", path("tiny.yaml"), "--out", path(run)};
    words.insert(words.end(), more.begin(), more.end());
    return octet(words, start);
  }
  RunDirectory directory(const std::string& run) const { return {path(run)}; }
};

}  // namespace octet::test
