// SPDX-License-Identifier: Apache-2.0
// Files with random damage, for readers that must refuse and never crash.
#pragma once

#include <random>
#include <string>

namespace octet::test {

/// Makes 3,000 copies with one to three random bytes changed and returns for how many `refusal` has a message.
template <typename Refusal>
int refused_of_damaged(const std::string& bytes, unsigned seed, const Refusal& refusal) {
  std::mt19937 random(seed);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = bytes;
    for (int flips = 0; flips < 1 + round % 3; ++flips)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    if (!refusal(damaged).empty()) ++refused;
  }
  return refused;
}

}  // namespace octet::test
