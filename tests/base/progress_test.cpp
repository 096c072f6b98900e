// SPDX-License-Identifier: Apache-2.0
#include "src/base/progress.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace octet {
namespace {

TEST(Progress, AResumedRunCountsWhatItDidItself) {
  testing::internal::CaptureStderr();
  {
    Progress progress("float 1/2", 100, "images", 60);
    progress.update(100, "loss 0.5");
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(std::regex_match(said, std::regex("float 1/2: 40 images in .*loss 0.5\n"))) << said;
}

TEST(Progress, WhatIsSaidHasNoControlCharactersButLineEnds) {
  testing::internal::CaptureStderr();
  say("unused 'con\x1b[2J\tv'\nsecond");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "unused 'con?[2J?v'\nsecond\n");
}

}  // namespace
}  // namespace octet
