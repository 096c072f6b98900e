#include "src/common/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "src/common/error.h"

namespace octet {
namespace {

std::atomic<bool> g_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // a handler of a signal sets it

void on_signal(int) {
  if (g_interrupted.exchange(true)) ::_exit(static_cast<int>(ExitCode::interrupted));
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return g_interrupted; }

void interrupt() { g_interrupted = true; }

void forget_interrupt() { g_interrupted = false; }

void throw_if_interrupted() {
  if (interrupted()) throw Error(ExitCode::interrupted, "interrupted");
}

}  // namespace octet
