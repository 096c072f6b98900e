// Ctrl-C as a flag that loops look at between steps; a second Ctrl-C ends the process at once.
#pragma once

namespace octet {

void install_interrupt_handler();  ///< SIGINT and SIGTERM
bool interrupted();
void throw_if_interrupted();  ///< Error(ExitCode::interrupted)

}  // namespace octet
