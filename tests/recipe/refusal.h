// SPDX-License-Identifier: Apache-2.0
// A recipe with what must be given and nothing else, and what a refusal must say.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/recipe/schema.h"

namespace octet {

inline const std::string kMinimal = "data:\n  format: cifar10\n  path: x\nmodel:\n  name: resnet20\n";

/// The message of the refusal; "" and a test failure when the recipe is accepted.
inline std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse_recipe(text, "r.yaml", overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  ADD_FAILURE() << "accepted:\n" << text.substr(0, 300);
  return "";
}

inline void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks " << part;
}

}  // namespace octet
