// The random streams of a training epoch: which picture comes when, and what happens to it. Batches depend on these
// alone, on every device and with any number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "src/common/random.h"

namespace octet {

struct Epoch {
  uint64_t seed = 0;
  int number = 0;
};

/// Into the order in which the epoch shows them.
template <class T>
void shuffle_for(const Epoch& epoch, std::vector<T>& values) {
  Random({epoch.seed, static_cast<uint64_t>(epoch.number), 1}).shuffle(values);
}

/// What augments the picture at `place` (from 0) of that order.
inline Random random_for(const Epoch& epoch, size_t place) {
  return Random({epoch.seed, static_cast<uint64_t>(epoch.number), 2, place});
}

}  // namespace octet
