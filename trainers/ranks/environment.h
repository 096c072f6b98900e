// Which of several processes this one is, as torchrun, srun or mpirun say it in the environment. No LibTorch.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace octet {

struct RankEnvironment {
  int rank = 0, size = 1;              ///< RANK, WORLD_SIZE: of all hosts
  int local_rank = 0, local_size = 1;  ///< LOCAL_RANK, LOCAL_WORLD_SIZE: of this host
  std::string address;                 ///< MASTER_ADDR: where rank 0 listens
  int port = 0;                        ///< MASTER_PORT
  bool store_is_there = false;         ///< torchrun itself listens at that address: rank 0 need not
};

/// A variable of the environment; none: it is not set.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> from_process(const std::string& name);

/// Nothing when WORLD_SIZE is missing or 1: the process trains alone. Throws Error(usage) naming a variable that is
/// missing, no number or out of range. LOCAL_RANK and LOCAL_WORLD_SIZE default to RANK and WORLD_SIZE: one host.
std::optional<RankEnvironment> read_rank_environment(const Lookup& lookup = from_process);

/// CUDA_VISIBLE_DEVICES for this process: the GPU of its own among `visible`, the variable as it is now (none: all are
/// visible). One that already names a single GPU stays. Throws Error(usage) when fewer GPUs are named than ranks run
/// here.
std::string own_gpu(const RankEnvironment& ranks, const std::optional<std::string>& visible);

}  // namespace octet
