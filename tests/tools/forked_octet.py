# SPDX-License-Identifier: Apache-2.0
"""A program whose libraries are loaded once for all its commands (fork_before_main.cpp)."""
import os
import socket
import struct
import subprocess
import tempfile


class Program:
    """`library`: that of fork_before_main.cpp; "" starts the program anew for each command."""

    def __init__(self, path, library):
        self.path, self.library, self.ours = str(path), library, None

    def run(self, words, folder=".", environment=None):
        """What subprocess.run gives, with text."""
        words, environment = [self.path, *map(str, words)], dict(os.environ if environment is None else environment)
        if not self.library:
            return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300)
        if self.ours is None:
            self.load(environment)
        with tempfile.TemporaryDirectory() as taken:
            files = [f"{taken}/out", f"{taken}/err"]
            strings = [str(folder), *files, "0", "0", str(len(words)), *words, *(f"{name}={value}" for name, value in environment.items())]
            request = b"".join(text.encode() + b"\0" for text in strings)
            self.ours.sendall(struct.pack("=I", len(request)) + request)
            self.answers.readline()  # the process's number
            code = os.waitstatus_to_exitcode(int(self.answers.readline()))
            said = []
            for file in files:
                with open(file, encoding="utf-8") as text:
                    said.append(text.read())
        return subprocess.CompletedProcess(words, code, *said)

    def load(self, environment):
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(300)
        self.answers = self.ours.makefile()
        with theirs:
            environment = {**environment, "LD_PRELOAD": self.library, "OCTET_FORK_SOCKET": str(theirs.fileno())}
            self.process = subprocess.Popen([self.path], pass_fds=[theirs.fileno()], env=environment)

    def close(self):
        if self.ours is not None:
            self.answers.close()
            self.ours.close()
            self.process.wait()
