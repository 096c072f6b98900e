// SPDX-License-Identifier: Apache-2.0
#include "trainers/parallel/environment.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"

namespace octet {
namespace {

constexpr const char* kWhoSets =
    "torchrun sets it; by hand: WORLD_SIZE=2 RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500";

std::string required(const Lookup& lookup, const char* name) {
  const std::optional<std::string> value = lookup(name);
  if (!value || value->empty()) throw usage_error(fmt::format("WORLD_SIZE is set, but {} is not ({})", name, kWhoSets));
  return *value;
}

int number(const char* name, const std::string& text, int min, int max) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min || value > max)
    throw usage_error(fmt::format("{}='{}': a whole number from {} to {} is needed", name, text, min, max));
  return value;
}

int number_or(const Lookup& lookup, const char* name, int usual, int min, int max) {
  const std::optional<std::string> text = lookup(name);
  return text ? number(name, *text, min, max) : usual;
}

class Socket {
 public:
  Socket(int family, int type) : fd_(::socket(family, type | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& address, int port, int type) {
  addrinfo hints{};
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0)
    throw usage_error(fmt::format("MASTER_ADDR={}: {}", address, ::gai_strerror(error)));
  return {found, &::freeaddrinfo};
}

sockaddr_storage name_of(const Socket& socket) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&name), &length);
  return name;
}

}  // namespace

std::optional<std::string> from_process(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::optional<RankEnvironment> read_rank_environment(const Lookup& lookup) {
  constexpr int kMaxRanks = 1 << 16;
  RankEnvironment ranks;
  ranks.size = number_or(lookup, "WORLD_SIZE", 1, 1, kMaxRanks);
  if (ranks.size == 1) return std::nullopt;
  ranks.rank = number("RANK", required(lookup, "RANK"), 0, ranks.size - 1);
  ranks.local_size = number_or(lookup, "LOCAL_WORLD_SIZE", ranks.size, 1, ranks.size);
  ranks.local_rank = number_or(lookup, "LOCAL_RANK", ranks.rank, 0, ranks.local_size - 1);
  ranks.address = required(lookup, "MASTER_ADDR");
  ranks.port = number("MASTER_PORT", required(lookup, "MASTER_PORT"), 1, (1 << 16) - 1);
  ranks.store_is_there = lookup("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return ranks;
}

std::string own_gpu(const RankEnvironment& ranks, const std::optional<std::string>& visible) {
  if (!visible) return std::to_string(ranks.local_rank);
  const std::vector<std::string> names = split(*visible, ',');
  if (names.size() == 1) return *visible;
  if (names.size() < static_cast<size_t>(ranks.local_size))
    throw usage_error(fmt::format("CUDA_VISIBLE_DEVICES={} names {} GPUs for {} processes on this host; a GPU each",
                                  *visible, names.size(), ranks.local_size));
  return names[static_cast<size_t>(ranks.local_rank)];
}

int listen_at(const std::string& address, int port) {
  const Addresses found = resolve(address, port, SOCK_STREAM);
  Socket socket(found->ai_family, SOCK_STREAM);
  const int yes = 1;  // a port can be reused right after a run that ended
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(socket.fd(), found->ai_addr, found->ai_addrlen) == 0 && ::listen(socket.fd(), SOMAXCONN) == 0)
    return socket.release();
  const std::string cure =
      errno == EADDRINUSE ? "take another MASTER_PORT" : "MASTER_ADDR is an address of the host on which rank 0 runs";
  throw usage_error(fmt::format("rank 0 cannot listen at {}:{}: {}; {}", address, port, std::strerror(errno), cure));
}

bool is_listened_at(const std::string& address, int port) {
  const Addresses found = resolve(address, port, SOCK_STREAM);
  const Socket socket(found->ai_family, SOCK_STREAM);
  return ::connect(socket.fd(), found->ai_addr, found->ai_addrlen) == 0;
}

std::string own_address_towards(const std::string& address, int port) {
  const Addresses found = resolve(address, port, SOCK_DGRAM);
  const Socket socket(found->ai_family, SOCK_DGRAM);
  if (::connect(socket.fd(), found->ai_addr, found->ai_addrlen) != 0)
    throw usage_error(fmt::format("MASTER_ADDR={}: {}", address, std::strerror(errno)));
  const sockaddr_storage name = name_of(socket);
  char text[NI_MAXHOST] = "";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&name), sizeof name, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

int free_local_port() {
  const Socket socket(AF_INET, SOCK_STREAM);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0)
    throw promise_error(fmt::format("no free port at 127.0.0.1: {}", std::strerror(errno)));
  const sockaddr_storage name = name_of(socket);
  return ntohs(reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

}  // namespace octet
