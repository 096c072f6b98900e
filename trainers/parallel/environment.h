// SPDX-License-Identifier: Apache-2.0
// Which of several processes this one is, as torchrun, srun or mpirun tell it in the environment, and the addresses at
// which the processes meet. No LibTorch.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace octet {

/// The variables of the environment, by which a process knows its place among all.
struct RankEnvironment {
  int rank = 0, size = 1;              ///< RANK, WORLD_SIZE: over all hosts
  int local_rank = 0, local_size = 1;  ///< LOCAL_RANK, LOCAL_WORLD_SIZE: on this host
  std::string address;                 ///< MASTER_ADDR: where rank 0 listens
  int port = 0;                        ///< MASTER_PORT
  bool store_is_there = false;         ///< torchrun itself listens at that address, so rank 0 does not
};

/// Returns a variable of the environment; empty if it is not set.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> from_process(const std::string& name);

/// Returns this process's place, or nothing if WORLD_SIZE is missing or 1: the process trains alone. LOCAL_RANK and
/// LOCAL_WORLD_SIZE default to RANK and WORLD_SIZE (a single host). Throws Error(usage) naming a variable that is
/// missing, no number or out of range.
std::optional<RankEnvironment> read_rank_environment(const Lookup& lookup = from_process);

/// Returns CUDA_VISIBLE_DEVICES for this process: its own GPU among `visible`, the present value of the variable
/// (empty: all GPUs are visible). A value that names a single GPU stays. Throws Error(usage) if it names fewer GPUs
/// than ranks run on this host.
std::string own_gpu(const RankEnvironment& ranks, const std::optional<std::string>& visible);

// Sockets. Ranks listen at the address they were given, never at all addresses of the host.

/// Returns a socket that listens at address:port, as a file descriptor that the caller closes or passes on. Throws
/// Error(usage) if the port is in use or the address is not this host's.
int listen_at(const std::string& address, int port);

/// Returns whether address:port accepts connections now; a signal ends the attempt. Throws Error(usage) if the address
/// cannot be resolved.
bool is_listened_at(const std::string& address, int port);

/// Returns the numeric address of this host from which address:port is reached: "127.0.0.1" for a loopback. Nothing is
/// sent. Throws Error(usage) if the address cannot be resolved or has no route.
std::string own_address_towards(const std::string& address, int port);

/// Returns a port at 127.0.0.1 that was free at the time of the call.
int free_local_port();

}  // namespace octet
