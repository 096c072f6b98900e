// SPDX-License-Identifier: Apache-2.0
// Tests that need a GPU say so and are counted as skipped where there is none.
#pragma once

#include <gtest/gtest.h>

#include "src/cuda/device.h"

// First line of such a test.
#define OCTET_NEEDS_GPU() \
  if (!octet::gpu_status().usable) GTEST_SKIP() << "needs a GPU: " << octet::gpu_status().reason

// The same of a test for several GPUs.
#define OCTET_NEEDS_GPUS(count)                                                      \
  OCTET_NEEDS_GPU();                                                                 \
  if (octet::gpu_status().visible < (count) || !octet::gpu_status((count)-1).usable) \
  GTEST_SKIP() << "needs " << (count) << " GPUs: " << octet::gpu_status().visible << " can be seen"
