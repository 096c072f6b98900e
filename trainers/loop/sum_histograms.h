// What ranks observed, each on its own pictures, becomes what all of them observed.
#pragma once

#include <vector>

#include "src/quant/calibrator.h"
#include "trainers/ranks/ranks.h"

namespace octet {

/// Adds to each rank's observers, by node, those of all others: the same bits on every rank, those of one that saw all
/// pictures itself (counts are whole, bins a power of two wide). Of minmax and histogram. Waits for ranks that work.
void sum_histograms(Ranks& ranks, std::vector<Observer>& observers);

}  // namespace octet
