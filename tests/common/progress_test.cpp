#include "src/common/progress.h"

#include <gmock/gmock.h>

namespace octet {
namespace {

TEST(Progress, AResumedRunCountsWhatItDidItself) {
  testing::internal::CaptureStderr();
  {
    Progress progress("float 1/2", 100, "images", 60);
    progress.update(100, "loss 0.5");
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::MatchesRegex("float 1/2: 40 images in .*loss 0.5\n"));
}

}  // namespace
}  // namespace octet
