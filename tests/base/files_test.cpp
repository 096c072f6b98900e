// SPDX-License-Identifier: Apache-2.0
#include "src/base/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "src/base/error.h"
#include "src/base/names.h"

namespace octet {
namespace {

namespace fs = std::filesystem;

class FilesTest : public testing::Test {
 protected:
  FilesTest() : folder_(fs::temp_directory_path() / ("octet_files_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~FilesTest() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  fs::path folder_;
};

TEST_F(FilesTest, Sha256OfPublishedVectors) {  // FIPS 180-4 examples
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST_F(FilesTest, WritesAtomicallyAndLeavesNoTemporary) {
  write_file_atomically(path("a"), "first");
  write_file_atomically(path("a"), "second");
  EXPECT_EQ(read_file(path("a")), "second");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

/// Makes every file that this process writes end at `bytes`, as on a full disk, while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(FilesTest, AFullDiskKeepsTheOldFileAndNamesTheReason) {
  write_file_atomically(path("a"), "old");
  const std::string large(5000, 'x');
  try {
    const FileSizeLimit limit(4096);
    write_file_atomically(path("a"), large);
    FAIL() << "no error on a full disk";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_NE(std::string(error.what()).find("cannot write: File too large"), std::string::npos) << error.what();
  }
  EXPECT_EQ(read_file(path("a")), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(FilesTest, ThreadsThatWriteOneFileLeaveItWhole) {
  const size_t size = size_t{1} << 20;
  std::atomic<int> failed{0};
  std::vector<std::thread> writers;
  for (const char letter : {'a', 'b', 'c', 'd'}) {
    writers.emplace_back([&, letter] {
      for (int time = 0; time < 30; ++time) {
        try {
          write_file_atomically(path("shared"), std::string(size + letter, letter));
          const std::string read = read_file(path("shared"));
          if (read != std::string(size + read.front(), read.front())) ++failed;
        } catch (const Error&) {  // another thread has renamed, or removed, this one's temporary file
          ++failed;
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(FilesTest, ATemporaryFileThatIsThereIsAnothers) {  // of a container whose processes have the same numbers
  for (int number = 0; number < 200; ++number)
    std::ofstream(path("a") + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(number)) << "another's";
  write_file_atomically(path("a"), "new");
  EXPECT_EQ(read_file(path("a")), "new");
  for (int number = 0; number < 200; ++number)
    EXPECT_EQ(read_file(path("a") + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(number)), "another's");
}

TEST_F(FilesTest, ADeviceIsNotReplaced) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", path("link"));
  for (const char* name : {"pipe", "link"}) {
    try {
      write_file_atomically(path(name), "new");
      FAIL() << "written in place of " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_NE(std::string(error.what()).find(path(name) + ": no regular file"), std::string::npos) << error.what();
    }
  }
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2);
}

TEST_F(FilesTest, MissingFilesAndFoldersAreNamed) {
  EXPECT_THROW(read_file(path("missing")), Error);
  EXPECT_THROW(read_file(folder_.string()), Error);
  EXPECT_THROW(write_file_atomically(path("no/such/folder"), "x"), Error);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THROW(read_file(path("pipe")), Error);  // opening it would wait for a writer
  std::ofstream(path("empty")).flush();
  EXPECT_EQ(read_file(path("empty")), "");
}

TEST(Nearest, FindsTypingErrorsOnly) {
  const std::array<std::string_view, 3> words = {"activation", "weight_bits", "observer"};
  const auto word = [&](size_t i) { return words[i]; };
  EXPECT_EQ(nearest("activaton", word, words.size()), "activation");
  EXPECT_EQ(nearest("weight_bit", word, words.size()), "weight_bits");
  EXPECT_EQ(nearest("zzz", word, words.size()), "");
}

}  // namespace
}  // namespace octet
