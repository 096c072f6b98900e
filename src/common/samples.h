// What many measured values amount to.
#pragma once

#include <vector>

namespace octet {

/// Nearest-rank percentile (0 < q <= 1) of samples in any order; 0 for none.
double percentile(std::vector<double> samples, double q);
/// Middle sample, or the mean of the two middle ones; 0 for none.
double median(std::vector<double> samples);

}  // namespace octet
