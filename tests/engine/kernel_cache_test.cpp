// SPDX-License-Identifier: Apache-2.0
#include "src/engine/kernel_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "src/base/files.h"

namespace octet {
namespace {

namespace fs = std::filesystem;

class KernelCache : public ::testing::Test {
 protected:
  KernelCache() : root_(fs::temp_directory_path() / ("octet_kernel_cache_" + std::to_string(::getpid()))) {}
  ~KernelCache() override { fs::remove_all(root_); }

  std::string folder() const { return root_ / "octet" / "kernels"; }
  std::string only_file() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(folder())) files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? "" : files.front();
  }

  fs::path root_;
};

TEST_F(KernelCache, FindsWhatWasKept) {
  EXPECT_EQ(cached_kernel(folder(), "H200 64 > 256"), std::nullopt);
  cache_kernel(folder(), "H200 64 > 256", "wgmma");
  cache_kernel(folder(), "H200 64 > 512", "mma");
  EXPECT_EQ(cached_kernel(folder(), "H200 64 > 256"), "wgmma");
  EXPECT_EQ(cached_kernel(folder(), "H200 64 > 512"), "mma");
  EXPECT_EQ(cached_kernel(folder(), "H100 64 > 256"), std::nullopt);
  cache_kernel(folder(), "H200 64 > 256", "dp4a");
  EXPECT_EQ(cached_kernel(folder(), "H200 64 > 256"), "dp4a");
}

TEST_F(KernelCache, DamagedFilesCountAsNone) {
  cache_kernel(folder(), "key", "wgmma_128");
  const std::string file = only_file(), whole = read_file(file);
  for (size_t length = 0; length < whole.size(); ++length) {
    write_file_atomically(file, whole.substr(0, length));
    ASSERT_EQ(cached_kernel(folder(), "key"), std::nullopt) << length << " bytes of " << whole.size();
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] ^= 1;
    write_file_atomically(file, damaged);
    ASSERT_EQ(cached_kernel(folder(), "key"), std::nullopt) << "byte " << at;
  }
  write_file_atomically(file, whole + "more");
  EXPECT_EQ(cached_kernel(folder(), "key"), std::nullopt);
  write_file_atomically(file, whole);
  EXPECT_EQ(cached_kernel(folder(), "key"), "wgmma_128");
}

TEST_F(KernelCache, WritersAtOnceLeaveOneWholeFile) {
  std::vector<pid_t> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.push_back(::fork());
    if (writers.back() == 0) {
      for (int i = 0; i < 50; ++i) cache_kernel(folder(), "key", "kernel_" + std::to_string(writer));
      ::_exit(0);
    }
  }
  for (int i = 0; i < 200; ++i) {
    const auto seen = cached_kernel(folder(), "key");
    if (seen) {
      EXPECT_TRUE(seen->starts_with("kernel_")) << *seen;
    }
  }
  for (const pid_t writer : writers) {
    int status = -1;
    ASSERT_EQ(::waitpid(writer, &status, 0), writer);
    EXPECT_EQ(status, 0);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { cache_kernel(folder(), "key", "kernel_of_a_thread"); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cached_kernel(folder(), "key"), "kernel_of_a_thread");
  only_file();  // no temporary stays
}

TEST_F(KernelCache, WithoutAFolderItKeepsNothing) {
  EXPECT_EQ(kernel_cache(), "") << "tests keep choices";
  cache_kernel("", "key", "wgmma");
  EXPECT_EQ(cached_kernel("", "key"), std::nullopt);
  fs::create_directories(root_);
  write_file_atomically(root_ / "octet", "a file where the folder should be");
  cache_kernel(folder(), "key", "wgmma");
  EXPECT_EQ(cached_kernel(folder(), "key"), std::nullopt);
}

TEST_F(KernelCache, LiesWhereXdgSays) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  const std::string home = variable("HOME"), cache = variable("XDG_CACHE_HOME");
  ::setenv("HOME", "/home/someone", 1);
  ::setenv("XDG_CACHE_HOME", "/scratch/cache", 1);
  EXPECT_EQ(kernel_cache_folder(), "/scratch/cache/octet/kernels");
  ::setenv("XDG_CACHE_HOME", "not/absolute", 1);  // to be ignored, says the specification
  EXPECT_EQ(kernel_cache_folder(), "/home/someone/.cache/octet/kernels");
  ::unsetenv("XDG_CACHE_HOME"), ::unsetenv("HOME");
  EXPECT_EQ(kernel_cache_folder(), "");
  if (!home.empty()) ::setenv("HOME", home.c_str(), 1);
  if (!cache.empty()) ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
}

}  // namespace
}  // namespace octet
