#include "src/common/start_thread.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "src/common/cores.h"
#include "src/common/error.h"

namespace octet {

std::thread start_thread(std::function<void()> body, const std::string& what, const std::string& cure) {
  std::function<void()> run = std::move(body);
  if (is_bound())  // this thread alone is meant
    run = [body = std::move(run), cores = affinity()] {
      bind_to_cores(cores);
      body();
    };
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    throw usage_error(
        fmt::format("{} did not start ({}): the system allows no more threads (ulimit -u, the pids limit of a "
                    "container) or has no memory for one; {}",
                    what, error.code().message(), cure));
  }
}

}  // namespace octet
