// SPDX-License-Identifier: Apache-2.0
// A checkpoint, loaded by the C functions of include/octet/octet.h.
#pragma once

#include <gtest/gtest.h>
#include <octet/octet.hpp>

#include <string>
#include <vector>

#include "src/net/checkpoint.h"
#include "src/net/int8_graph.h"
#include "tests/data/images.h"

namespace octet::test {

inline std::string last_error() { return octet_last_error(); }

inline void expect_error(octet_status got, octet_status wanted, const std::vector<std::string>& parts) {
  EXPECT_EQ(got, wanted) << last_error();
  for (const std::string& part : parts) EXPECT_NE(last_error().find(part), std::string::npos) << last_error();
}

/// Has a folder for checkpoints and images.
class CApi : public ::testing::Test {
 protected:
  octet_network* load(const Int8Graph& graph, const char* engine = "cpu", int max_batch = 4) {
    write_checkpoint(folder_.path("int8.safetensors"), graph);
    octet_network* network = nullptr;
    EXPECT_EQ(octet_load(folder_.path("int8.safetensors").c_str(), engine, max_batch, 1, &network), OCTET_OK)
        << last_error();
    return network;
  }
  testing::TemporaryFolder folder_;
};

}  // namespace octet::test
