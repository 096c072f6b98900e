// Ctrl-C, or a program's own wish, as a flag that loops look at between steps; a second Ctrl-C ends the process at
// once.
#pragma once

namespace octet {

void install_interrupt_handler();  ///< SIGINT and SIGTERM
bool interrupted();
void interrupt();             ///< as Ctrl-C does; from any thread, or a handler of a signal
void forget_interrupt();      ///< before other work begins in this process
void throw_if_interrupted();  ///< Error(ExitCode::interrupted)

}  // namespace octet
