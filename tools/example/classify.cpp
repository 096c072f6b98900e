// SPDX-License-Identifier: Apache-2.0
// classify CHECKPOINT IMAGE: what is on the image, and the network's logits. A program outside octet's tree.
#include <algorithm>
#include <cstdio>
#include <octet/octet.hpp>
#include <vector>

int main(int count, char** arguments) try {
  if (count != 3) {
    std::fprintf(stderr, "usage: classify CHECKPOINT IMAGE\n");
    return OCTET_USAGE;
  }
  octet::runtime::Network network(arguments[1]);
  const std::vector<uint8_t> pixels = network.read_picture(arguments[2]);
  const std::vector<float> logits = network.logits(pixels);
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  std::printf("%s\n", network.class_name(best).c_str());
  for (const float logit : logits) std::printf("%.9g\n", static_cast<double>(logit));
} catch (const octet::runtime::Error& error) {
  std::fprintf(stderr, "classify: %s\n", error.what());
  return error.status();
}
