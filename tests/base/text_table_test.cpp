// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "src/base/text.h"

namespace octet {
namespace {

TEST(TextTable, AlignsAndLeavesNoTrailingSpaces) {
  TextTable table({{"layer", Align::left}, {"codes"}, {"note", Align::left}});
  table.add_row({"conv1", "1,234", "first"});
  table.add_row({"a \xC2\xB5s", "7"});
  EXPECT_EQ(table.render(),
            "layer  codes  note\n"
            "-------------------\n"
            "conv1  1,234  first\n"
            "a \xC2\xB5s       7\n");
  EXPECT_THROW(table.add_row({"1", "2", "3", "4"}), std::invalid_argument);
}

TEST(TextTable, ANameOfAFileBreaksNoLine) {
  TextTable table({{"node", Align::left}, {"codes"}});
  table.add_row({"con\nv\x1b[2J", "7"});
  EXPECT_EQ(table.render(),
            "node       codes\n"
            "----------------\n"
            "con?v?[2J      7\n");
}

TEST(TextTable, Thousands) {
  EXPECT_EQ(with_thousands(0), "0");
  EXPECT_EQ(with_thousands(999), "999");
  EXPECT_EQ(with_thousands(1000), "1,000");
  EXPECT_EQ(with_thousands(12345678), "12,345,678");
  EXPECT_EQ(with_thousands(-123456), "-123,456");
  EXPECT_EQ(with_thousands(-123), "-123");
}

TEST(TextTable, Units) {
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(41.1e6), "41.1 M");
  EXPECT_EQ(human_count(999600), "1.00 M");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(285044), "285 kB");
  EXPECT_EQ(human_bytes(1.1e6), "1.10 MB");
  EXPECT_EQ(human_seconds(2.12e-4), "212 \xC2\xB5s");
  EXPECT_EQ(human_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(human_seconds(1.5), "1.50 s");
  EXPECT_EQ(human_seconds(59.97), "1 min 00 s");
  EXPECT_EQ(human_seconds(75), "1 min 15 s");
  EXPECT_EQ(human_seconds(4020), "1 h 07 min");
  EXPECT_EQ(percent(0.91734), "91.73 %");
  EXPECT_EQ(counted(1, "code"), "1 code");
  EXPECT_EQ(counted(1700, "code"), "1,700 codes");
}

TEST(TextTable, Decibels) {
  EXPECT_EQ(decibels(12.34), "12.3 dB");
  EXPECT_EQ(decibels(-1.26, ""), "-1.3");
  EXPECT_EQ(decibels(std::numeric_limits<double>::infinity()), "lossless");
  EXPECT_EQ(decibels(-std::numeric_limits<double>::infinity(), ""), "no signal");
}

TEST(TextTable, Decimals) {
  EXPECT_EQ(decimal(0), "0");
  EXPECT_EQ(decimal(12.345), "12.3");
  EXPECT_EQ(decimal(0.0123456), "0.0123");
  EXPECT_EQ(decimal(1234.5), "1,235");
  EXPECT_EQ(decimal(-3.2), "-3.20");
  EXPECT_EQ(decimal(1e-9), "1e-09");
  EXPECT_EQ(decimal(std::numeric_limits<double>::quiet_NaN()), "nan");
}

}  // namespace
}  // namespace octet
