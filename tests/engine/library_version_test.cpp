// SPDX-License-Identifier: Apache-2.0
// Versions of cuDNN and cuBLASLt that the engine cudnn takes. Needs no GPU.
#include "src/engine/peers/peer.h"

#include <gtest/gtest.h>

namespace octet::test {
namespace {

std::string fault(const LibraryVersion& loaded) {
  return version_fault({"cuDNN", "nvidia-cudnn-cu13", loaded, {9, 19, 1}});
}

TEST(LibraryVersion, ReadsNvidiasNumbers) {
  EXPECT_EQ(LibraryVersion::from_number(91900).text(), "9.19.0");
  EXPECT_EQ(LibraryVersion::from_number(130102).text(), "13.1.2");
}

TEST(LibraryVersion, TakesTheSameOrANewerMinor) {
  EXPECT_EQ(fault({9, 19, 1}), "");
  EXPECT_EQ(fault({9, 19, 0}), "");
  EXPECT_EQ(fault({9, 20, 0}), "");
}

TEST(LibraryVersion, RefusesAnOlderMinorWithBothVersionsAndTheCure) {
  EXPECT_EQ(fault({9, 18, 2}),
            "cuDNN 9.18.2 was loaded, octet was compiled for 9.19.1 and needs 9.19 or a newer 9.x; install it (pip "
            "install \"nvidia-cudnn-cu13>=9.19,<10\") and name its folder first in LD_LIBRARY_PATH");
}

TEST(LibraryVersion, RefusesAnotherMajor) {
  EXPECT_NE(fault({8, 30, 0}).find("cuDNN 8.30.0 was loaded, octet was compiled for 9.19.1"), std::string::npos);
  EXPECT_NE(fault({10, 19, 1}).find("cuDNN 10.19.1 was loaded, octet was compiled for 9.19.1"), std::string::npos);
}

}  // namespace
}  // namespace octet::test
