// Tests that need a GPU say so and are counted as skipped where there is none.
#pragma once

#include <gtest/gtest.h>

#include "src/cuda/device.h"

// First line of such a test.
#define OCTET_NEEDS_GPU() \
  if (!octet::gpu_status().usable) GTEST_SKIP() << "needs a GPU: " << octet::gpu_status().reason
