// SPDX-License-Identifier: Apache-2.0
#include "src/base/text.h"

#include <gtest/gtest.h>

namespace octet {
namespace {

TEST(Utf8, LengthsAtTheEdgesOfEveryForm) {
  EXPECT_EQ(utf8_length("a\x80"), 1u);
  EXPECT_EQ(utf8_length("\x7F"), 1u);
  EXPECT_EQ(utf8_length("\xC2\x80"), 2u);               // U+0080
  EXPECT_EQ(utf8_length("\xDF\xBF"), 2u);               // U+07FF
  EXPECT_EQ(utf8_length("\xE0\xA0\x80"), 3u);           // U+0800
  EXPECT_EQ(utf8_length("\xED\x9F\xBF"), 3u);           // U+D7FF
  EXPECT_EQ(utf8_length("\xEE\x80\x80"), 3u);           // U+E000
  EXPECT_EQ(utf8_length("\xF0\x90\x80\x80"), 4u);       // U+10000
  EXPECT_EQ(utf8_length("\xF4\x8F\xBF\xBF more"), 4u);  // U+10FFFF
}

TEST(Utf8, BrokenSequencesHaveNone) {
  for (const char* text : {"\x80", "\xBF", "\xC1\xBF", "\xC2", "\xC2\x41", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE2\x82",
                           "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xF0\x90\x80", "\xFF"}) {
    EXPECT_EQ(utf8_length(text), 0u) << text;
  }
}

TEST(Utf8, NamesAreShownWithoutControlCharacters) {
  EXPECT_EQ(printable("layer1.0 caf\u00e9 \u4f60"), "layer1.0 caf\u00e9 \u4f60");
  EXPECT_EQ(printable("a\x1b[2J\nb\x7f\t"), "a?[2J?b??");
  EXPECT_EQ(printable("a\xC2\x9B\xC2\x80\xC2\xA0z"),
            "a??\u00a0z");  // U+009B starts a control sequence, U+00A0 is a space
  EXPECT_EQ(printable("a\xFF\xE2\x82"), "a???");
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable_lines("a\x1b[2J\n\nb\x7f\t\xC2\x9B\xFF\n"), "a?[2J\n\nb????\n");
}

}  // namespace
}  // namespace octet
