// SPDX-License-Identifier: Apache-2.0
#include "src/base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

#include "src/base/error.h"

namespace octet {
namespace {

/// The temporary file that becomes `target`. It is removed unless move_to_target() succeeds.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string target) : target_(std::move(target)) {
    struct stat there {};
    if (::stat(target_.c_str(), &there) == 0 && !S_ISREG(there.st_mode))  // a rename would take a device's place
      throw data_error(fmt::format("{}: no regular file, which it would replace; give the name of a file", target_));
    // Threads take different numbers. A file that exists already belongs to another container or a killed process.
    static std::atomic<uint64_t> number{0};
    do {
      path_ = fmt::format("{}.tmp.{}.{}", target_, ::getpid(), number++);
      fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    } while (fd_ < 0 && errno == EEXIST);
    if (fd_ < 0) fail("cannot create");
  }
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!released_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::string_view data) {
    while (!data.empty()) {
      const ssize_t written = ::write(fd_, data.data(), data.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("cannot write");
      data.remove_prefix(static_cast<size_t>(written));
    }
  }

  void move_to_target() {
    if (::fsync(fd_) != 0) fail("cannot write");
    const int closed = ::close(fd_);
    fd_ = -1;
    if (closed != 0) fail("cannot write");
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail("cannot rename");
    released_ = true;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw data_error(fmt::format("{}: {}: {}", target_, what, std::strerror(errno)));
  }

  std::string target_, path_;
  int fd_ = -1;
  bool released_ = false;
};

/// A file that is open, and is closed at the end.
struct Descriptor {
  explicit Descriptor(int of) : number(of) {}
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  const int number;
};

// SHA-256, FIPS 180-4 section 6.2.
constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void sha256_block(std::array<uint32_t, 8>& h, const unsigned char* block) {
  std::array<uint32_t, 64> w;
  for (int t = 0; t < 16; ++t) {
    w[t] = uint32_t{block[4 * t]} << 24 | uint32_t{block[4 * t + 1]} << 16 | uint32_t{block[4 * t + 2]} << 8 |
           uint32_t{block[4 * t + 3]};
  }
  for (int t = 16; t < 64; ++t) {
    const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, k] = h;
  for (int t = 0; t < 64; ++t) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = k + s1 + ((e & f) ^ (~e & g)) + kRound[t] + w[t];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    k = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> sum = {a, b, c, d, e, f, g, k};
  for (int i = 0; i < 8; ++i) h[i] += sum[i];
}

}  // namespace

std::string read_file(const std::string& path) {
  const auto fail = [&] { throw data_error(fmt::format("{}: cannot read: {}", path, std::strerror(errno))); };
  // Opened first, so that size and contents are of one file although another process puts a new one in its place.
  // Without O_NONBLOCK, opening a pipe that nobody writes to would block for ever.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (file.number < 0 || ::fstat(file.number, &info) != 0) fail();
  if (S_ISDIR(info.st_mode)) throw data_error(fmt::format("{}: is a folder, expected a file", path));
  if (!S_ISREG(info.st_mode)) throw data_error(fmt::format("{}: is not a regular file", path));  // a device has no end
  std::string contents(static_cast<size_t>(info.st_size), '\0');
  size_t size = 0;
  while (size < contents.size()) {
    const ssize_t read = ::read(file.number, contents.data() + size, contents.size() - size);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) fail();
    if (read == 0) break;  // it has become shorter meanwhile
    size += static_cast<size_t>(read);
  }
  contents.resize(size);
  return contents;
}

void write_file_atomically(const std::string& path, std::string_view contents) {
  TemporaryFile file(path);
  file.write(contents);
  file.move_to_target();
}

void require_place_for(const std::string& file) {
  if (std::filesystem::is_directory(file)) throw data_error(file + ": is a folder; name a file in it");
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (folder.empty() || std::filesystem::is_directory(folder)) return;
  throw data_error(fmt::format("{}: there is no folder {}; make it first", file, folder.string()));
}

std::string sha256(std::string_view data) {
  std::array<uint32_t, 8> h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string padded(data);
  padded.push_back('\x80');
  padded.resize((padded.size() + 8 + 63) / 64 * 64);
  const uint64_t bits = uint64_t{data.size()} * 8;
  for (int i = 0; i < 8; ++i) padded[padded.size() - 1 - i] = static_cast<char>(bits >> (8 * i));
  for (size_t at = 0; at < padded.size(); at += 64) {
    sha256_block(h, reinterpret_cast<const unsigned char*>(padded.data()) + at);
  }
  std::string hex;
  for (uint32_t word : h) hex += fmt::format("{:08x}", word);
  return hex;
}

bool is_onnx(const std::byte* data, size_t size) {
  if (size < 3) return false;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(data[i]); };
  constexpr uint8_t kVersion = 0x08;       // field 1, a number: ir_version, 3 and more
  constexpr uint8_t kModelVersion = 0x28;  // field 5, a number; fields 2 to 8 are otherwise messages or strings
  const bool text = byte(2) % 8 == 2 && byte(2) / 8 >= 2 && byte(2) / 8 <= 8;
  return byte(0) == kVersion && byte(1) >= 1 && byte(1) < 0x80 && (text || byte(2) == kModelVersion);
}

bool is_pytorch(const std::byte* data, size_t size) {
  const auto begins = [&](std::string_view text) {
    return size >= text.size() && std::memcmp(data, text.data(), text.size()) == 0;
  };
  return begins({"PK\x03\x04", 4}) || begins({"\x80\x02\x8a\x0a", 4});  // the pickle begins with a long, its magic
}

bool is_safetensors(const std::byte* data, size_t size) {
  uint64_t header = 0;
  if (size <= sizeof(header)) return false;
  std::memcpy(&header, data, sizeof(header));
  return header <= size - sizeof(header) && data[sizeof(header)] == std::byte{'{'};
}

FolderLock::FolderLock(const std::string& folder)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  throw usage_error(fmt::format("{}: another octet is at work in this folder; wait for it, or stop it", folder));
}

FolderLock::Taken FolderLock::taken(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return Taken::unknown;
  const int failed = ::flock(descriptor, LOCK_SH | LOCK_NB) == 0 ? 0 : errno;
  ::close(descriptor);
  return failed == 0 ? Taken::no : failed == EWOULDBLOCK ? Taken::yes : Taken::unknown;
}

FolderLock::FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace octet
