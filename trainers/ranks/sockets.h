// Where ranks listen: at the address they were given, never on all of the host's.
#pragma once

#include <string>

namespace octet {

/// A socket that listens at address:port, as a file descriptor that the caller closes or hands on. Throws Error(usage):
/// the port is in use, or the address is not this host's.
int listen_at(const std::string& address, int port);

/// Whether somebody answers at address:port now; a signal ends the attempt. Throws Error(usage) when the address cannot
/// be resolved.
bool is_listened_at(const std::string& address, int port);

/// This host's address from which address:port is reached, in numbers: "127.0.0.1" for a loopback. Nothing is sent.
/// Throws Error(usage) when the address cannot be resolved or no way leads there.
std::string own_address_towards(const std::string& address, int port);

/// A port at 127.0.0.1 that was free just now.
int free_local_port();

}  // namespace octet
