// SPDX-License-Identifier: Apache-2.0
// Codes of few bits: their place in the stream, and back.
#include "src/net/checkpoint.h"

#include <gtest/gtest.h>

#include "src/base/random.h"
#include "tests/error_of.h"

namespace octet::test {
namespace {

TEST(PackedCodes, LieLowestBitFirst) {
  EXPECT_EQ(pack_codes({1, -2, -1, 0, 1}, 2), (std::vector<uint8_t>{0b00'11'10'01, 0b01}));
  EXPECT_EQ(pack_codes({-8, 7, 3}, 4), (std::vector<uint8_t>{0x78, 0x03}));
  // 3 bits cross bytes: 001, 110, 111, 100 -> 12 bits.
  EXPECT_EQ(pack_codes({1, -2, -1, -4}, 3), (std::vector<uint8_t>{0b11'110'001, 0b100'1}));
}

TEST(PackedCodes, ComeBackAtEveryWidthAndLength) {
  Random random({5});
  for (int bits = 2; bits <= 8; ++bits) {
    for (size_t count = 0; count < 40; ++count) {
      std::vector<int8_t> codes;
      for (size_t i = 0; i < count; ++i)
        codes.push_back(static_cast<int8_t>(static_cast<int>(random.below(1u << bits)) - (1 << (bits - 1))));
      const std::vector<uint8_t> packed = pack_codes(codes, bits);
      EXPECT_EQ(packed.size(), packed_bytes(count, bits));
      EXPECT_LE(code_bits(codes), bits);
      ASSERT_EQ(unpack_codes(packed, count, bits), codes) << bits << " bits, " << count << " codes";
    }
  }
}

TEST(PackedCodes, TheFewestBitsHoldEveryCode) {
  EXPECT_EQ(code_bits({}), 2);
  EXPECT_EQ(code_bits({-2, 1}), 2);
  EXPECT_EQ(code_bits({0, 2}), 3);
  EXPECT_EQ(code_bits({-5}), 4);
  EXPECT_EQ(code_bits({7, -8}), 4);
  EXPECT_EQ(code_bits({8}), 5);
  EXPECT_EQ(code_bits({-127}), 8);
}

TEST(PackedCodes, DamageIsRefused) {
  EXPECT_NE(error_of([] {
              unpack_codes({1, 2}, 3, 2);
            }).find("3 codes of 2 bits take 1 bytes, not 2"),
            std::string::npos);
  EXPECT_NE(error_of([] { unpack_codes({0b01'00'00'00}, 3, 2); }).find("bits behind the last code"), std::string::npos);
}

}  // namespace
}  // namespace octet::test
