// SPDX-License-Identifier: Apache-2.0
// detect CHECKPOINT IMAGE...: the boxes in images. A program outside octet's tree.
#include <cstdio>
#include <octet/octet.hpp>

int main(int count, char** arguments) try {
  if (count < 3) {
    std::fprintf(stderr, "usage: detect CHECKPOINT IMAGE...\n");
    return OCTET_USAGE;
  }
  octet::runtime::Network network(arguments[1]);
  for (int i = 2; i < count; ++i)
    for (const octet_box& box : network.boxes(arguments[i]))
      std::printf("%s: %s %.3f, %.1f x %.1f at %.1f, %.1f\n", arguments[i], network.class_name(box.class_index).c_str(),
                  box.score, box.width, box.height, box.x, box.y);
} catch (const octet::runtime::Error& error) {
  std::fprintf(stderr, "detect: %s\n", error.what());
  return error.status();
}
