// SPDX-License-Identifier: Apache-2.0
// Batches that a GPU decodes beside those of the CPU.
#pragma once

#include "src/cuda/nvjpeg.h"
#include "src/data/dataset.h"
#include "src/recipe/run.h"
#include "tests/cuda/gpu.h"

#define OCTET_NEEDS_NVJPEG() \
  OCTET_NEEDS_GPU();         \
  if (!why_no_nvjpeg().empty()) GTEST_SKIP() << "needs nvJPEG: " << why_no_nvjpeg()

namespace octet::testing_trainers {

inline constexpr int kDecodedBatch = 12;

/// A smooth image without symmetry, of a colour of its own: red grows to the right, green downwards, blue along a
/// wave.
Image painted(int height, int width, int number);

/// Returns a run whose training images are all of a data set, decoded by the GPU, with usual means and deviations.
RunData gpu_decoded(const DatasetSpec& spec);

/// Differences of values in levels of 8 bits, of all batches of three epochs, the last without mosaics and mixed
/// images.
struct Differences {
  double mean = 0, largest = 0;
  int batches = 0;
};

/// Makes batches of kDecodedBatch images as data.decode says and on the CPU. Labels must be equal, and sizes.
Differences differences(const RunData& data);

}  // namespace octet::testing_trainers
