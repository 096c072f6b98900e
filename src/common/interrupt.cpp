#include "src/common/interrupt.h"

#include <unistd.h>

#include <csignal>

#include "src/common/error.h"

namespace octet {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

void on_signal(int) {
  if (g_interrupted) ::_exit(static_cast<int>(ExitCode::interrupted));
  g_interrupted = 1;
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return g_interrupted != 0; }

void throw_if_interrupted() {
  if (interrupted()) throw Error(ExitCode::interrupted, "interrupted");
}

}  // namespace octet
