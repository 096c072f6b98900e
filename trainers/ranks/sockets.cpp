#include "trainers/ranks/sockets.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "src/common/error.h"

namespace octet {
namespace {

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

int listen_at(const std::string& address, int port) {
  const Addresses found = resolve(address, port, SOCK_STREAM);
  Socket socket(found->ai_family, SOCK_STREAM);
  const int yes = 1;  // a run that ended a moment ago does not keep the port
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
